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

// The same program had its CPU been at full pace: host code and calls that do not wait take the part of their time that
// probes near their step say (HostPace::during). Code follows probes roughly, so this is a bound and no figure. False,
// and nothing changed, where every step was at full pace or nothing is known of any.
bool put_at_full_pace(const Context& context, const replay::Recording& recording, replay::Durations& durations);

}  // namespace llmprof
