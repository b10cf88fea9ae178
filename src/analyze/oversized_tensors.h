// Passes over tensors that nothing of the model is as large as: one-hot rows of a vocabulary, masks of 8-byte numbers,
// everything kept where the newest would do.
#pragma once

#include <vector>

#include "analyze/analysis.h"

namespace llmprof {

struct OversizedPass {
  GpuOpId op = kNoRow;
  double bytes = 0;       // moved at least, by its time and the bandwidth that kernels reach
  int64_t needed_ns = 0;  // what a pass over the largest result of a product takes
};

// Elementwise kernels, reductions and fills in steps that take longer than four passes over the largest matrix that a
// product of the step reads or writes, weights included. Their grids fill the GPU, so memory is what takes them long.
// Only of steps whose products are of known shapes; nothing where the bandwidth is not known.
std::vector<OversizedPass> oversized_passes(const Context& context);

}  // namespace llmprof
