// Mixtures of experts whose every expert works on every token: products of one layer that repeat as often as its router
// has outputs, on all of the router's rows, though a token has chosen a few of them.
#pragma once

#include <utility>
#include <vector>

#include "analyze/analysis.h"

namespace llmprof {

// Of one layer of one step.
struct DenseExperts {
  StepId step = kNoRow;
  int64_t experts = 0, chosen = 0, rows = 0;
  bool chosen_known = false;  // by the recording; else what is usual
  int64_t now_ns = 0;         // of what the experts do
  // What each kernel of the experts would take if they had only the tokens that chose them, ns.
  std::vector<std::pair<GpuOpId, int64_t>> then;
};

// None where shapes are not known.
std::vector<DenseExperts> dense_experts(const Context& context);

}  // namespace llmprof
