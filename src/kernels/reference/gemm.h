// Matrix products in fp64 over sampled outputs.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "device/device.h"
#include "kernels/op.h"
#include "ops/product.h"

namespace llmprof::kernels {

// A product of the GEMM family (ops/product.h) in memory. Null: it has none.
struct GemmOperands {
  const Buffer& a;
  const Buffer& w;
  const Buffer& out;
  const ops::Product& product;
  double scale = 1;  // of every sum
  const Buffer* bias = nullptr;
  const Buffer* residual = nullptr;
  const Buffer* row_scales = nullptr;
  const Buffer* column_scales = nullptr;
  bool w_across = false;  // the weights of a product without groups lie as [k, n]
};
// What sampled outputs must be: 64 x 64 random rows and columns, the first and last among them (fewer columns of many
// groups, all outputs of a small product), computed from the inputs as they lie in memory. It serves every candidate of
// a case.
struct GemmExpected {
  std::vector<int64_t> rows, columns;
  std::vector<double> reference, tolerance;  // of each row's columns, row after row
};
Result<GemmExpected> expect_gemm(Device& device, const GemmOperands& operands, uint64_t seed);
// These outputs, and whether others were written at all: every one of a product of some MB, whole rows spread over a
// larger one. `out` was poisoned before the kernel ran.
Result<Check> check_gemm(Device& device, const GemmOperands& operands, const GemmExpected& expected);
Result<Check> check_gemm(Device& device, const GemmOperands& operands, uint64_t seed);

}  // namespace llmprof::kernels
