// Costs of operators over rows, by hand.
#include <gtest/gtest.h>

#include "ops/rows.h"
#include "ops_params.h"

namespace llmprof::ops {
namespace {

OpParams bf16_of(std::vector<std::pair<std::string_view, int64_t>> axes, std::string variant = {}) {
  return params_of(std::move(axes), DType::kBf16, std::move(variant));
}

TEST(RowCosts, ByHand) {
  const OpParams norm = bf16_of({{"tokens", 10}, {"hidden", 100}});
  EXPECT_DOUBLE_EQ(rmsnorm_cost(norm).read_bytes, 2 * (1000 + 100));
  EXPECT_DOUBLE_EQ(rmsnorm_cost(norm).write_bytes, 2 * 1000);
  EXPECT_DOUBLE_EQ(rmsnorm_cost(bf16_of({{"tokens", 10}, {"hidden", 100}}, "residual")).bytes(), 2 * (4000 + 100));
  EXPECT_DOUBLE_EQ(layernorm_gelu_cost(norm).bytes(), 2 * (2000 + 200));
  EXPECT_DOUBLE_EQ(quantise_cost(norm).bytes(), 1000 * 3 + 40);
  EXPECT_EQ(dequantise_cost(norm).read_bytes, 1000 + 40);
  EXPECT_EQ(dequantise_cost(norm).write_bytes, 2000);
  EXPECT_EQ(dequantise_cost(norm).flops, 1000);
  EXPECT_DOUBLE_EQ(softmax_cost(bf16_of({{"rows", 10}, {"columns", 100}})).bytes(), 4000);
  EXPECT_DOUBLE_EQ(softmax_cost(bf16_of({{"rows", 10}, {"columns", 100}})).flops, 1000);
  EXPECT_DOUBLE_EQ(swiglu_cost(bf16_of({{"tokens", 10}, {"ffn", 100}})).bytes(), 2 * 3000);
  const OpParams rope = bf16_of({{"tokens", 10}, {"heads", 4}, {"kv_heads", 2}, {"head_dim", 8}});
  EXPECT_DOUBLE_EQ(rope_cost(rope).bytes(), 2 * 10 * 6 * 8 * 2 + 4 * 10 * 8);
  const OpParams embedding = bf16_of({{"tokens", 10}, {"vocab", 1000}, {"hidden", 100}});
  EXPECT_DOUBLE_EQ(embedding_cost(embedding).bytes(), 2 * 1000 * 2 + 40);
  EXPECT_EQ(embedding_footprint(embedding), 1010 * 100 * 2 + 40) << "the whole table";
  const OpParams append = bf16_of({{"tokens", 10}, {"kv_heads", 2}, {"head_dim", 8}});
  EXPECT_DOUBLE_EQ(kv_append_cost(append).bytes(), 4 * 160 * 2 + 40);
  EXPECT_EQ(kv_append_footprint(append), 10 * (2 + 8) * 16 * 2 + 40) << "four slots per token, twice";
}

}  // namespace
}  // namespace llmprof::ops
