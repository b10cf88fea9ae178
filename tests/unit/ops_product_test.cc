// Products and what routes tokens to them, by hand.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "ops/product.h"
#include "ops_params.h"

namespace llmprof::ops {
namespace {

using Axes = std::vector<std::pair<std::string_view, int64_t>>;

TEST(Product, CostOfALinearLayer) {
  const Axes axes = {{"m", 16}, {"n", 4096}, {"k", 14336}};
  const auto cost_of = [&](DType dtype, const char* variant = "plain") {
    return product_cost_of<gemm_product>(params_of(axes, dtype, variant));
  };
  const Cost plain = cost_of(DType::kBf16);
  EXPECT_EQ(plain.flops, 1'879'048'192.0);
  EXPECT_EQ(plain.read_bytes, 458'752.0 + 117'440'512.0);
  EXPECT_EQ(plain.write_bytes, 131'072.0);
  EXPECT_TRUE(plain.matrix);
  // Integers are added up in 32 bits, 8-bit floats stored as bf16, TF32 lies in memory as FP32.
  EXPECT_EQ(cost_of(DType::kInt8).read_bytes, 229'376.0 + 58'720'256.0);
  EXPECT_EQ(cost_of(DType::kInt8).write_bytes, 262'144.0);
  EXPECT_EQ(cost_of(DType::kFp8).write_bytes, 131'072.0);
  EXPECT_EQ(cost_of(DType::kFp4).write_bytes, 131'072.0);
  EXPECT_DOUBLE_EQ(cost_of(DType::kFp4).read_bytes, 0.5625 * cost_of(DType::kFp8).read_bytes) << "as NVFP4 is stored";
  EXPECT_EQ(cost_of(DType::kTf32).bytes(), cost_of(DType::kFp32).bytes());
  // A bias is a vector, a residual a matrix; neither counts as FLOPs.
  EXPECT_EQ(cost_of(DType::kBf16, "bias_gelu").read_bytes, plain.read_bytes + 2 * 4096);
  EXPECT_EQ(cost_of(DType::kBf16, "residual").read_bytes, plain.read_bytes + plain.write_bytes);
  EXPECT_EQ(cost_of(DType::kBf16, "residual").flops, plain.flops);
}

TEST(Product, CostOfScales) {
  const OpParams params = params_of({{"m", 16}, {"n", 4096}, {"k", 1024}}, DType::kInt8);
  const Cost cost = product_cost_of<gemm_w8a8_product>(params);
  EXPECT_EQ(cost.read_bytes, 16.0 * 1024 + 4096.0 * 1024 + 4 * (16 + 4096));
  EXPECT_EQ(cost.write_bytes, 2.0 * 16 * 4096) << "bf16, unlike the sums";
  EXPECT_GE(product_footprint_of<gemm_w8a8_product>(params), static_cast<int64_t>(cost.bytes()) + 4 * 16 * 4096);
}

TEST(Product, ABatchCostsAsManyProducts) {
  const OpParams one = params_of({{"m", 24}, {"n", 40}, {"k", 56}}, DType::kFp16, "plain");
  const OpParams many = params_of({{"batch", 7}, {"m", 24}, {"n", 40}, {"k", 56}}, DType::kFp16);
  EXPECT_EQ(product_cost_of<gemm_batched_product>(many).flops, 7 * product_cost_of<gemm_product>(one).flops);
  EXPECT_EQ(product_cost_of<gemm_batched_product>(many).bytes(), 7 * product_cost_of<gemm_product>(one).bytes());
}

TEST(Product, RowsOfGroups) {
  const auto rows_of = [](int64_t rows, int64_t groups, const char* variant) {
    const Product product = gemm_grouped_product(
        params_of({{"rows", rows}, {"groups", groups}, {"n", 8}, {"k", 8}}, DType::kBf16, variant));
    EXPECT_EQ(product.rows(), rows);
    EXPECT_EQ(product.groups(), groups);
    std::vector<int64_t> each;
    for (int64_t g = 0; g < groups; ++g) each.push_back(product.rows_of(g));
    return each;
  };
  EXPECT_EQ(rows_of(10, 4, "even"), (std::vector<int64_t>{3, 3, 2, 2}));
  // 12 of 1 + 1/2 + 1/3 + 1/4 = 25/12: 5.76, 2.88, 1.92, 1.44.
  EXPECT_EQ(rows_of(12, 4, "skewed"), (std::vector<int64_t>{6, 3, 2, 1}));
  for (const int64_t count : rows_of(1000, 256, "skewed")) EXPECT_GE(count, 0);
  // Weights of a group without rows are not read.
  const OpParams few = params_of({{"rows", 2}, {"groups", 4}, {"n", 8}, {"k", 16}}, DType::kBf16, "even");
  EXPECT_EQ(product_cost_of<gemm_grouped_product>(few).read_bytes, 2.0 * (2 * 16 + 2 * 8 * 16));
}

TEST(Experts, ExpectedHitsMatchTheTableAndTheirBounds) {
  struct Case {
    int64_t experts, top_k, tokens;
    double hit, tolerance;
  };
  for (const Case& c : {Case{8, 2, 1, 2, 0}, Case{8, 2, 2, 3.5, 1e-9}, Case{8, 2, 4, 5.5, 0.05},
                        Case{8, 2, 8, 7.2, 0.05}, Case{128, 4, 16, 51.0, 0.05}, Case{128, 4, 32, 81.7, 0.05},
                        Case{128, 8, 16, 82.4, 0.05}, Case{128, 8, 8, 51.6, 0.05}, Case{256, 8, 2, 15.75, 1e-9},
                        Case{256, 8, 16, 102, 0.5}, Case{256, 8, 32, 163, 0.5}, Case{256, 8, 128, 252, 0.5}})
    EXPECT_NEAR(expected_experts(c.experts, c.top_k, c.tokens), c.hit, c.tolerance)
        << c.experts << " " << c.top_k << " " << c.tokens;
  for (const int64_t tokens : {1, 2, 3, 10, 1000, 1 << 20}) {
    const double hit = expected_experts(64, 6, tokens);
    EXPECT_GE(hit, 6);
    EXPECT_LE(hit, std::min<double>(64, 6.0 * static_cast<double>(tokens)));
  }
  EXPECT_EQ(expected_experts(4, 4, 9), 4);
}

}  // namespace
}  // namespace llmprof::ops
