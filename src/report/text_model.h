// Parts of the page of `llmprof model`.
#pragma once

#include <vector>

#include "results/model.h"

namespace llmprof {

// Operators of the same name and shape, together: one line for all layers that look alike.
struct ModelOperatorGroup {
  const ModelOperatorRow* first = nullptr;
  std::vector<int64_t> layers;  // of every member, in order; -1 outside the layers
  double flops = 0, bytes = 0;  // sums
};
// Of one stage, in order of first execution. Sums over the groups are the stage's totals.
std::vector<ModelOperatorGroup> group_operators(const std::vector<ModelOperatorRow>& operators, ModelStage stage);

}  // namespace llmprof
