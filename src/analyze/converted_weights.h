// Weights that are made anew before each product: passes over as many numbers as the weights of the product behind them
// have. Weights stored as integers and turned into the type of the product do this, also those of a wider type.
#pragma once

#include <vector>

#include "analyze/analysis.h"

namespace llmprof {

struct ConvertedWeights {
  GpuOpId product = kNoRow;
  std::vector<GpuOpId> passes;  // in their order
};

// By the grids that PyTorch gives its elementwise kernels, and by kernels whose name says that they dequantise. A pass
// that may as well be one over what the product multiplies the weights with, or over its result, is none.
std::vector<ConvertedWeights> converted_weights(const Context& context);

}  // namespace llmprof
