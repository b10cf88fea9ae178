// Steps that sort the chances of a whole vocabulary to draw from a few of them.
#pragma once

#include <vector>

#include "analyze/analysis.h"

namespace llmprof {

struct SortedChances {
  GpuOpId stays = kNoRow;         // the longest kernel of the sort: about what choosing the largest takes
  std::vector<GpuOpId> gone;      // the others of the sort
  std::vector<GpuOpId> narrowed;  // behind it in the step, over all that was sorted
};

// By the names of sorting kernels (cub's radix and merge sort, PyTorch's bitonic sort and what it puts around them), of
// each step whose sort takes 50 us or more.
std::vector<SortedChances> sorted_chances(const Context& context);

}  // namespace llmprof
