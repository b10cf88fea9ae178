// Weights that a step reads several times because parts of its batch go through the model on streams of their own.
#pragma once

#include <vector>

#include "analyze/analysis.h"

namespace llmprof {

// Of one step.
struct RepeatedReads {
  double read_bytes = 0, again_bytes = 0;  // of weights that all passes read: by the first of them, and by the others
  int64_t matrices = 0, passes = 0;
  std::vector<std::pair<GpuOpId, int64_t>> joined;  // of the pass that stays, and ns that it takes for all of them
  std::vector<GpuOpId> gone;                        // of the other passes, and what else their streams do alike
};

// By the addresses of weights, which the hooks of cuBLAS see: passes are alike where they read the same matrices in the
// same order. What an activity takes alone, where several ran at once, is its share of that time. A product on the rows
// of all passes takes as much longer as its roof says; attention as long as that of all passes one behind the other; a
// pass over memory as long as the longest, or where that is 10 us or more, as all of them.
std::vector<RepeatedReads> repeated_reads(const Context& context);

}  // namespace llmprof
