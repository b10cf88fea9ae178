// What PyTorch's elementwise kernels pass over, by the grids that it gives them.
#pragma once

#include <cstdint>

#include "trace/trace.h"

namespace llmprof {

// Whether the kernel's grid is that of a pass over so many numbers. False for kernels that are no such passes.
bool passes_over(const Trace& trace, GpuOpId op, int64_t numbers);

}  // namespace llmprof
