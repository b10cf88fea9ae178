// What attention, convolutions and LSTM layers cost, and their references, by hand.
#include <gtest/gtest.h>

#include <cmath>

#include "device/attention_costs.h"
#include "device/library_costs.h"
#include "device/reference/attention.h"
#include "device/reference/lstm.h"
#include "device_params.h"

namespace llmprof::device {
namespace {

TEST(DeviceAttentionCosts, Decode) {
  OpParams params =
      params_of({{"batch", 2}, {"heads", 8}, {"kv_heads", 2}, {"head_dim", 64}, {"context", 100}}, DType::kBf16);
  const Cost cost = attention_decode_cost(params);
  EXPECT_EQ(cost.flops, 4 * 2 * 8 * 100 * 64);
  EXPECT_EQ(cost.read_bytes, 2 * (2 * 2 * 100 * 2 * 64 + 2 * 8 * 64));
  EXPECT_EQ(cost.write_bytes, 2 * 2 * 8 * 64);
  EXPECT_TRUE(cost.matrix);
  params.variant = "paged";
  EXPECT_EQ(attention_decode_cost(params).read_bytes, cost.read_bytes + 4 * 2 * 7) << "seven pages of a sequence";
}

TEST(DeviceAttentionCosts, Prompt) {
  OpParams params =
      params_of({{"batch", 2}, {"heads", 8}, {"kv_heads", 2}, {"head_dim", 64}, {"prompt", 10}, {"context", 1}},
                DType::kFp16, "causal");
  EXPECT_EQ(attention_keys(params), 10);
  EXPECT_EQ(attention_cost(params).flops, 4 * 2 * 8 * 55 * 64);
  EXPECT_EQ(attention_cost(params).bytes(), 2 * (2 * 2 * 10 * 8 * 64 + 2 * 2 * 10 * 2 * 64));
  params.variant = "full";
  EXPECT_EQ(attention_cost(params).flops, 4 * 2 * 8 * 100 * 64);
  params.axes.back().second = 30;
  params.variant = "causal";
  EXPECT_EQ(attention_cost(params).flops, 4 * 2 * 8 * (10 * 20 + 55) * 64);
}

TEST(DeviceLibraryCosts, Convolution) {
  const OpParams params =
      params_of({{"batch", 2}, {"height", 9}, {"width", 7}, {"in", 6}, {"out", 10}, {"kernel", 3}, {"stride", 2}},
                DType::kBf16, "same");
  const ConvSizes of(params);
  EXPECT_EQ(of.out_height(), 5);
  EXPECT_EQ(of.out_width(), 4);
  EXPECT_EQ(conv2d_cost(params).flops, 2 * 2 * 10 * 5 * 4 * 6 * 9);
  EXPECT_EQ(conv2d_cost(params).bytes(), 2 * (2 * 6 * 9 * 7 + 10 * 6 * 9 + 2 * 10 * 5 * 4));
}

TEST(DeviceLibraryCosts, Lstm) {
  const OpParams params =
      params_of({{"batch", 3}, {"tokens", 5}, {"input", 8}, {"hidden", 12}, {"layers", 2}}, DType::kFp16);
  EXPECT_EQ(lstm_cost(params).flops, 2 * 15 * 4 * 12 * (8 + 12) + 2 * 15 * 4 * 12 * 24);
  EXPECT_EQ(LstmSizes(params).weights(), 4 * 12 * (8 + 12 + 2) + 4 * 12 * (12 + 12 + 2));
}

TEST(DeviceAttentionReference, WeighsValues) {
  // Scores 0 and ln 3: weights 1/4 and 3/4.
  const std::vector<double> q = {1, 0};
  const std::vector<float> k = {0, 5, static_cast<float>(std::log(3.0)), -7}, v = {4, 8, -4, 0};
  const AttentionRow both = attention_row(q, k, v, 2, 1);
  EXPECT_NEAR(both.out[0], -2, 1e-6);
  EXPECT_NEAR(both.out[1], 2, 1e-6);
  EXPECT_NEAR(both.squares[0], std::sqrt(1 + 9), 1e-6);
  const AttentionRow first = attention_row(q, k, v, 1, 1);
  EXPECT_EQ(first.out[0], 4);
  EXPECT_EQ(first.out[1], 8);
}

TEST(DeviceLstmReference, FollowsItsEquations) {
  LstmLayer layer;
  for (size_t gate = 0; gate < 8; ++gate) {
    layer.matrices[gate] = {0};
    layer.biases[gate] = {0};
  }
  layer.matrices[2] = {1};      // cell input: x
  layer.biases[1] = {100};      // forget nothing
  layer.biases[4 + 3] = {100};  // output everything
  const std::vector<Row> out = lstm_outputs({layer}, {{0.5}, {-1}}, DType::kFp64);
  const double c1 = 0.5 * std::tanh(0.5), c2 = c1 + 0.5 * std::tanh(-1.0);
  EXPECT_NEAR(out[0][0], std::tanh(c1), 1e-12);
  EXPECT_NEAR(out[1][0], std::tanh(c2), 1e-12);
  // The state of the step before counts too.
  layer.matrices[4 + 2] = {2};
  const std::vector<Row> fed_back = lstm_outputs({layer}, {{0.5}, {-1}}, DType::kFp64);
  EXPECT_NEAR(fed_back[1][0], std::tanh(c1 + 0.5 * std::tanh(-1 + 2 * std::tanh(c1))), 1e-12);
}

}  // namespace
}  // namespace llmprof::device
