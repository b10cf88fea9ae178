// Adapters (LoRA) that are computed beside the matrix that they belong to: two thin products, one behind the other,
// whose inner width is a small part of both outer ones, and the passes that scale their result and add it.
#pragma once

#include <vector>

#include "analyze/analysis.h"

namespace llmprof {

struct SeparateAdapter {
  int64_t rank = 0;           // inner width; 0: not known
  std::vector<GpuOpId> gone;  // all that merged weights take away, in order, of one step; at least one
};

// By the shapes of products on one stream within a step, where one of (m,n,k) lies beside them; and by the names of
// kernels that compute adapters (shrink and expand of Punica and vLLM).
std::vector<SeparateAdapter> separate_adapters(const Context& context);

}  // namespace llmprof
