// Convolutions and recurrent layers, by hand.
#include <gtest/gtest.h>

#include "ops/layers.h"
#include "ops_params.h"

namespace llmprof::ops {
namespace {

TEST(Layers, Convolution) {
  const OpParams params =
      params_of({{"batch", 2}, {"height", 9}, {"width", 7}, {"in", 6}, {"out", 10}, {"kernel", 3}, {"stride", 2}},
                DType::kBf16, "same");
  const ConvSizes of(params);
  EXPECT_EQ(of.out_height(), 5);
  EXPECT_EQ(of.out_width(), 4);
  EXPECT_EQ(conv2d_cost(params).flops, 2 * 2 * 10 * 5 * 4 * 6 * 9);
  EXPECT_EQ(conv2d_cost(params).bytes(), 2 * (2 * 6 * 9 * 7 + 10 * 6 * 9 + 2 * 10 * 5 * 4));
}

TEST(Layers, Lstm) {
  const OpParams params =
      params_of({{"batch", 3}, {"tokens", 5}, {"input", 8}, {"hidden", 12}, {"layers", 2}}, DType::kFp16);
  EXPECT_EQ(lstm_cost(params).flops, 2 * 15 * 4 * 12 * (8 + 12) + 2 * 15 * 4 * 12 * 24);
  EXPECT_EQ(LstmSizes(params).weights(), 4 * 12 * (8 + 12 + 2) + 4 * 12 * (12 + 12 + 2));
}

}  // namespace
}  // namespace llmprof::ops
