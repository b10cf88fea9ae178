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

bool is_product(const Works& works, WorkId work) {
  return work != kNoRow && works.kind[work] == WorkKind::kGemm && works.batch[work] == 1;
}

bool gives_logits(const Works& works, WorkId work) {
  constexpr int64_t kVocabularyMin = 8192, kWiderMin = 7;
  return is_product(works, work) && works.n[work] >= kVocabularyMin && works.n[work] > kWiderMin * works.k[work];
}

}  // namespace llmprof
