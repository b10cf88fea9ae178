// Products of one matrix for each row: adapters or experts whose weights are copied out of a table, row by row, before
// a batched product reads them.
#pragma once

#include <vector>

#include "analyze/analysis.h"

namespace llmprof {

struct GatheredWeights {
  GpuOpId gather = kNoRow, product = kNoRow;
  double bytes = 0;  // copied: the product's matrices
};

// A gather right before a product of a batch of 4 or more matrices with 16 rows at most each, on the same stream and in
// the same step, which takes at least half of what writing these matrices does at the bandwidth that kernels reach.
std::vector<GatheredWeights> gathered_weights(const Context& context);

}  // namespace llmprof
