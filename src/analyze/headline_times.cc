#include "analyze/headline_times.h"

namespace llmprof {

HeadlineTimes choose_times(const TimesBySource& by_source, size_t enough) {
  const auto of = [&](StepTimeSource source) -> const HeadlineTimes& { return by_source[static_cast<size_t>(source)]; };
  HeadlineTimes out = of(StepTimeSource::kUnrecorded);
  out.source = StepTimeSource::kUnrecorded;
  if (out.ms.size() >= enough) return out;
  const HeadlineTimes &replayed = of(StepTimeSource::kReplayed), &recorded = of(StepTimeSource::kRecorded);
  if (!replayed.ms.empty() && out.ms.size() + replayed.ms.size() >= recorded.ms.size()) {
    out.ms.insert(out.ms.end(), replayed.ms.begin(), replayed.ms.end());
    out.unsure_ms.insert(out.unsure_ms.end(), replayed.unsure_ms.begin(), replayed.unsure_ms.end());
    out.full_pace.insert(out.full_pace.end(), replayed.full_pace.begin(), replayed.full_pace.end());
    out.steps.insert(out.steps.end(), replayed.steps.begin(), replayed.steps.end());
    out.source = StepTimeSource::kReplayed;
    return out;
  }
  if (recorded.ms.empty()) return out;
  out = recorded;
  out.source = StepTimeSource::kRecorded;
  return out;
}

}  // namespace llmprof
