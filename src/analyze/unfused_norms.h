// Unfused norms: a chain of passes over memory that squares, averages, takes the root and multiplies.
#pragma once

#include <vector>

#include "analyze/analysis.h"

namespace llmprof {

struct UnfusedNorm {
  std::vector<GpuOpId> passes;  // in their order
  // The one that brings as much to and from memory as a fused norm does: where the norm widens 16-bit numbers, its
  // mean reads 4 bytes each, which is as much as reading and writing 2 are; else squaring reads and writes each once.
  GpuOpId stays = kNoRow;
};

// Root mean square norms, by the names that PyTorch gives its kernels.
std::vector<UnfusedNorm> unfused_norms(const Context& context);

}  // namespace llmprof
