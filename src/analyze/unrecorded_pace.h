// Recorded steps at the pace that the program has where nothing is recorded. What recording costs is measured per call;
// on some hosts all code runs slower beside it, and replay without the calls' cost is still too long. Where the same
// stage has unrecorded steps, how much slower is known.
#pragma once

#include "analyze/analysis.h"
#include "replay/what_if.h"

namespace llmprof {

// Shortens (or lengthens) the host code and the calls that do not wait of each stage with unrecorded steps by one
// factor, so that the median of its replayed steps is that of the unrecorded ones, as far as host code can do that.
// Nothing changes where the two are within 1 % of each other.
void fit_to_unrecorded(const Context& context, const replay::StepReplay& replay, const replay::Recording& recording,
                       const replay::Latencies& latencies, replay::Durations& durations);

}  // namespace llmprof
