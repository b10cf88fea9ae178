// Parameters of an operation without its row in the catalog.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ops/op.h"

namespace llmprof::ops {

inline OpParams params_of(std::vector<std::pair<std::string_view, int64_t>> axes, DType dtype,
                          std::string variant = {}) {
  OpParams params;
  params.axes = std::move(axes);
  params.dtype = dtype;
  params.variant = std::move(variant);
  params.seed = 5;
  return params;
}

}  // namespace llmprof::ops
