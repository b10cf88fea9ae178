// Operators over rows, for the CPU: sixteen lanes of fp32 whatever the elements are, compiled for each width of
// vectors. Rows of any length; elements fp32 or bf16.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "device/cpu/facts.h"

namespace llmprof::kernels::cpu {

// Whole matrices; each call works on rows [first, last) of them.
struct RowArrays {
  const void* x = nullptr;     // [rows, columns]; of swiglu [rows, 2 columns], gate first
  const void* gain = nullptr;  // [columns]
  const void* bias = nullptr;  // [columns]
  void* residual = nullptr;    // [rows, columns]: x is added to it before the norm, rounded and stored; may be null
  void* out = nullptr;         // [rows, columns]
  int64_t columns = 0;
  float epsilon = 0;
};
// Heads of `head` elements, rotated in place: halves (a, b) become (a cos - b sin, b cos + a sin).
struct RopeArrays {
  void* x = nullptr;                   // rows of `stride` elements, which begin with the heads
  const float* table = nullptr;        // [positions][2][head / 2]: cosines, then sines
  const int32_t* positions = nullptr;  // of each row; null: its number
  int64_t stride = 0, heads = 0, head = 0;
};
using RowKernel = void (*)(const RowArrays& arrays, int64_t first, int64_t last);

struct RowKernels {
  std::string_view name;  // "own AVX-512"
  RowKernel rmsnorm, layernorm_gelu, softmax, swiglu;
  void (*rope)(const RopeArrays& arrays, int64_t first, int64_t last);
};
// Widest first. Of fp32 or bf16.
std::vector<RowKernels> row_kernels(const device::cpu::Instructions& instructions, DType dtype);

}  // namespace llmprof::kernels::cpu
