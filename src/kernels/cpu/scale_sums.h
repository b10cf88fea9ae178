// Sums of an int8 product times a scale of their row and one of their column, rounded to bf16: what follows a product
// whose library has one scale for all.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "device/cpu/facts.h"

namespace llmprof::kernels::cpu {

struct ScaledSums {
  const int32_t* sums = nullptr;         // [rows, columns]
  const float* row_scales = nullptr;     // [rows]
  const float* column_scales = nullptr;  // [columns]
  uint16_t* out = nullptr;               // bf16 [rows, columns]
  int64_t columns = 0;
};
struct ScaleKernel {
  std::string_view name;  // "own AVX-512"
  void (*run)(const ScaledSums& arrays, int64_t first_row, int64_t last_row) = nullptr;
};
// Widest first.
std::vector<ScaleKernel> scale_kernels(const device::cpu::Instructions& instructions);

}  // namespace llmprof::kernels::cpu
