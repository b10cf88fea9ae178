// From the activities of the steps to their windows: the times a user would measure. A decode step lasts from the end
// of the step before it, so that the host's work between steps counts; a prefill lasts from its first host activity,
// and a stage that launched nothing as long as the program's range.
#pragma once

#include <vector>

#include "derive/host_calls.h"
#include "derive/recorded_spans.h"
#include "derive/step_draft.h"

namespace llmprof {

// Sets sync_ns and the window of each step. `steps` are those of one device in host order. Windows do not overlap and
// start <= end. A pause of more than 10 median steps and more than 100 ms belongs to no step. A detected step does not
// reach back over time in which kernels were not recorded: steps may be missing there.
void set_windows(std::vector<StepDraft>& steps, const HostCalls& calls, const std::vector<TimeSpan>& unrecorded);

}  // namespace llmprof
