// What copies and collectives hold up. Work that waits for one cannot start before its end, so while other streams go
// on starting kernels it holds up nobody; what counts is the time from the end of the last of those to its own end.
#pragma once

#include <cstdint>
#include <vector>

#include "trace/trace.h"

namespace llmprof {

// Parallel to gpu_ops, ns: of a copy or collective the part that no kernel of another stream of its device hides; the
// whole duration of anything else.
std::vector<int64_t> exposed_times(const Trace& trace);

}  // namespace llmprof
