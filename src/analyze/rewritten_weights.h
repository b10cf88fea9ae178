// Weights that a step makes anew from two thin matrices, as an adapter (LoRA) that is merged into them when its turn
// comes: a product of low rank whose result is as large as the weights of products beside it.
#pragma once

#include <vector>

#include "analyze/analysis.h"

namespace llmprof {

struct RewrittenWeights {
  int64_t rank = 0;           // inner width of the product that makes them
  std::vector<GpuOpId> gone;  // it, the memset before it, and passes over all of the weights behind it, of one step
};

// By shapes of products within a step: (m,n,k) makes weights of another product's n and k where k is at most 256 and an
// eighth of both, and m is not the rows that the step's other products run on.
std::vector<RewrittenWeights> rewritten_weights(const Context& context);

}  // namespace llmprof
