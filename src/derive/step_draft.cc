#include "derive/step_draft.h"

#include "derive/annotate.h"

namespace llmprof {

StepDraft draft_of_range(const StageRange& range, const StepName& name, AnnotationKind kind, int32_t device) {
  StepDraft draft;
  draft.device = device;
  draft.thread = range.thread;
  draft.source = kind == AnnotationKind::kNvtx ? StageSource::kNvtx : StageSource::kAnnotation;
  draft.kind = name.kind;
  draft.kind_known = !name.recurs;
  draft.recurs = name.recurs;
  draft.by_period = name.recurs && !name.holds_known_steps;
  draft.stage = name.stage;
  draft.annotation = range.annotation;
  draft.begin_ns = draft.host_start_ns = range.start_ns;
  draft.end_ns = range.end_ns;
  draft.new_tokens = name.new_tokens;
  draft.sequences = name.sequences;
  draft.context = name.context;
  draft.attended = name.attended;
  draft.output_tokens = name.output_tokens;
  return draft;
}

}  // namespace llmprof
