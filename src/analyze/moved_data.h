// Kernels that compute nothing: copies on the device, gathers, casts and writes of a cache, each long enough for its
// bytes to be the reason.
#pragma once

#include <vector>

#include "analyze/analysis.h"

namespace llmprof {

// Of steps, in order of time. What other findings know better is left to them: weights that are converted before their
// products, concatenations in decode steps (a cache that is not written in place).
std::vector<GpuOpId> moved_data(const Context& context);

}  // namespace llmprof
