// What attention, convolutions and LSTM layers cost, and their references, by hand.
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/reference/attention.h"
#include "kernels/reference/lstm.h"
#include "ops/attention.h"
#include "ops/layers.h"
#include "ops_params.h"

namespace llmprof::kernels {
namespace {

TEST(KernelsAttentionReference, WeighsValues) {
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
}  // namespace llmprof::kernels
