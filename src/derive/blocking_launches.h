// Launches that return only when their kernel has ended: CUDA_LAUNCH_BLOCKING, a debugger, or a driver that runs
// kernels one by one. The host then waits in each launch, and the GPU for the host behind each kernel.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "trace/trace.h"

namespace llmprof {

// The calls of a recording that do so, in order, each with what it would take if it returned when its kernel begins,
// ns. Empty where launches do not block: where fewer than nine in ten of the launches whose kernel takes 10 us or more,
// or fewer than 20 of them, end behind it. A launch takes 2 to 10 us and is over before such a kernel.
std::vector<std::pair<ApiCallId, int64_t>> blocking_launches(const Trace& trace);

}  // namespace llmprof
