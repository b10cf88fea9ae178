// The GEMM family: what each of its operations multiplies, and what that costs. FLOPs count a multiply-add as two and
// the products alone; traffic is the least there can be, each operand once.
//
//   gemm          axes m, n, k; variants plain, bias, bias_gelu, residual. 2 m n k FLOPs; reads m k + n k elements,
//                 a bias of n, a residual of m n; writes m n. An element of fp4 has 1/16 byte of its block's factor
//   gemm_batched  axes batch, m, n, k: `batch` times that
//   gemm_w8a8     axes m, n, k: int8 or fp8 with an fp32 scale per row of the activations and of the weights, to bf16
//   gemm_grouped  axes rows, groups, n, k; variants even, skewed. 2 rows n k FLOPs; weights of every group that has
//   rows
#pragma once

#include <cstdint>
#include <vector>

#include "ops/op.h"

namespace llmprof::ops {

// `batch` products of [m, k] and [k, n]: 2 batch m n k FLOPs.
struct Gemm {
  double batch = 1, m = 0, n = 0, k = 0;
  double flops() const { return 2 * batch * m * n * k; }
  double a_elements() const { return batch * m * k; }
  double b_elements() const { return batch * n * k; }
  double result_elements() const { return batch * m * n; }
};

// Distinct experts that `tokens` tokens are expected to hit when each picks top_k of `experts` uniformly and
// independently: E (1 - (1 - k/E)^T). Between k and min(E, k*T).
double expected_experts(int64_t experts, int64_t top_k, int64_t tokens);

// out[r] = activation(scales * a[r] w[group of r]^T + bias) + residual[r]; all row-major: a [rows, k], w [groups n, k],
// out and residual [rows, n].
struct Product {
  std::vector<int64_t> first_row;  // of each group, and the number of rows behind them: groups + 1
  int64_t n = 0, k = 0;
  DType dtype = DType::kFp32, out_dtype = DType::kFp32;
  bool bias = false;      // [n] of out_dtype
  bool gelu = false;      // by tanh, behind the bias
  bool residual = false;  // of out_dtype
  bool scales = false;    // fp32, [rows] and [n]

  int64_t rows() const { return first_row.back(); }
  int64_t groups() const { return static_cast<int64_t>(first_row.size()) - 1; }
  int64_t rows_of(int64_t group) const {
    return first_row[static_cast<size_t>(group) + 1] - first_row[static_cast<size_t>(group)];
  }
};

// The type that a plain product of `dtype` is stored in: int32 for int8, bf16 for fp8 and fp4, fp32 for tf32, else the
// same.
DType gemm_out_dtype(DType dtype);

Product gemm_product(const OpParams& params);
Product gemm_batched_product(const OpParams& params);
Product gemm_w8a8_product(const OpParams& params);
// even: rows / groups each, the first ones one more. skewed: group g gets a share of 1 / (g + 1) of the harmonic sum,
// as tokens crowd on a few experts.
Product gemm_grouped_product(const OpParams& params);

Cost product_cost(const Product& product);
// Buffers, and a copy of the weights in a layout of the library's own.
int64_t product_footprint(const Product& product);

// The same by an operation's parameters, as the catalog has it.
template <Product (*kProductOf)(const OpParams&)>
Cost product_cost_of(const OpParams& params) {
  return product_cost(kProductOf(params));
}
template <Product (*kProductOf)(const OpParams&)>
int64_t product_footprint_of(const OpParams& params) {
  return product_footprint(kProductOf(params));
}

}  // namespace llmprof::ops
