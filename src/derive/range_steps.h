// Steps from the ranges of a program: which launches belong to a range, and where a range that holds several runs of
// the model is split.
#pragma once

#include <cstdint>
#include <vector>

#include "derive/annotate.h"
#include "derive/host_calls.h"
#include "derive/launch_order.h"
#include "derive/recorded_spans.h"
#include "derive/step_draft.h"

namespace llmprof {

// Steps of one device from the ranges on the threads that launched on it, by host time. `detected` are the steps that
// were found on it without them. A range is split at the detected steps inside where the typical occurrence of its name
// holds two or more: one occurrence alone may hold much that is no step, as the trial launches of a compilation.
std::vector<StepDraft> steps_of_ranges(const Trace& trace, const StageRanges& stages, const LaunchOrder& order,
                                       const HostCalls& calls, const RecordedSpans& recorded,
                                       const std::vector<StepDraft>& detected);

}  // namespace llmprof
