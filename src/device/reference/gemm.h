// Matrix products in fp64 over sampled outputs.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "device/device.h"
#include "device/op.h"

namespace llmprof::device {

// out[m,n] = scale * sum over k of a[m,k] * w[n,k], all row-major and dense: a linear layer.
struct GemmOperands {
  const Buffer& a;
  const Buffer& w;
  const Buffer& out;
  int64_t m = 0, n = 0, k = 0;
  DType dtype = DType::kFp32, out_dtype = DType::kFp32;
  double scale = 1;
};
// What sampled outputs must be: 64 x 64 random rows and columns, the first and last among them (all outputs of a small
// product), computed from the inputs as they lie in memory. It serves every candidate of a case.
struct GemmExpected {
  std::vector<int64_t> rows, columns;
  std::vector<double> reference, tolerance;  // of each row's columns, row after row
};
Result<GemmExpected> expect_gemm(Device& device, const GemmOperands& operands, uint64_t seed);
// These outputs, and whether others were written at all: every one of a product of some MB, whole rows spread over a
// larger one. `out` was poisoned before the kernel ran.
Result<Check> check_gemm(Device& device, const GemmOperands& operands, const GemmExpected& expected);
Result<Check> check_gemm(Device& device, const GemmOperands& operands, uint64_t seed);

// The type that a product of `dtype` is stored in: int32 for int8, bf16 for fp8, else the same (fp32 for tf32).
DType gemm_out_dtype(DType dtype);

}  // namespace llmprof::device
