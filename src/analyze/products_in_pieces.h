// One product that is computed in pieces: several one behind the other, of the same rows and inner width, whose results
// stand beside each other. Heads that have a projection each, for one.
#pragma once

#include <cstdint>
#include <vector>

#include "analyze/analysis.h"

namespace llmprof {

struct ProductsInPieces {
  int64_t m = 0, n = 0, k = 0;  // of all together
  std::vector<GpuOpId> pieces;  // the products
  std::vector<GpuOpId> around;  // what stands between them, and the concatenation behind them
};

// Runs of four products with weights or more, none wider than half of its inner width, that nothing but parts of their
// own (split sums, counters set to zero) stands between: each then reads what was there before the first.
std::vector<ProductsInPieces> products_in_pieces(const Context& context);

}  // namespace llmprof
