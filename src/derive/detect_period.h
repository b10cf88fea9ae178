// The period of a sequence of kernel names, for recordings without operators, token choices or whole-step graphs.
#pragma once

#include <span>
#include <vector>

#include "trace/trace.h"

namespace llmprof {

// Indices into `gpu` (activities in launch order) at which a new step starts; empty if the names show no period. A
// name that occurs once per step has even distances; a name that occurs once per layer has one odd distance in every
// step. Linear in the activities: each distinct name is judged by its own occurrences only.
std::vector<size_t> period_starts(const Trace& trace, std::span<const GpuOpId> gpu);

}  // namespace llmprof
