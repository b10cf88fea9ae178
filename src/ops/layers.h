// Convolutions and recurrent layers, each operand once; b bytes per element:
//
//   conv2d   2 N K P Q C R S FLOPs (R S the filter, P Q the result); b (N C H W + K C R S + N K P Q) bytes
//   lstm     2 T B 4 H (I + H) FLOPs per layer (I is H behind the first); weights and biases once, b T B (I + H) bytes
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "ops/op.h"

namespace llmprof::ops {

// Positions of a filter along one side: floor((length + 2 padding - dilation (kernel - 1) - 1) / stride) + 1. The
// filter must fit.
constexpr int64_t filter_positions(int64_t length, int64_t kernel, int64_t stride, int64_t padding,
                                   int64_t dilation = 1) {
  return (length + 2 * padding - dilation * (kernel - 1) - 1) / stride + 1;
}

// Axes batch, height, width, in, out, kernel (of a square filter), stride; variants same (half a filter of
// padding on each side), valid (none).
struct ConvSizes {
  int64_t batch, channels, height, width, filters, kernel, stride, padding;
  explicit ConvSizes(const OpParams& params);
  int64_t out_height() const { return filter_positions(height, kernel, stride, padding); }
  int64_t out_width() const { return filter_positions(width, kernel, stride, padding); }
};
// Why such images cannot be convolved, or nothing.
std::optional<std::string> filter_too_large(const ConvSizes& of);
Cost conv2d_cost(const OpParams& params);
int64_t conv2d_footprint(const OpParams& params);

// Axes batch, tokens, input, hidden, layers.
struct LstmSizes {
  int64_t steps, batch, input, hidden, layers;
  explicit LstmSizes(const OpParams& params);
  int64_t weights() const;  // of the matrices and two biases of each gate
};
Cost lstm_cost(const OpParams& params);
int64_t lstm_footprint(const OpParams& params);

}  // namespace llmprof::ops
