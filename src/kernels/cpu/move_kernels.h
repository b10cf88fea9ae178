// Operators that move each element about once, for the CPU, in the widths of row_kernels.h: rotary positions and rows
// of fp8. Elements fp32 or bf16; rows of any length.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "device/cpu/facts.h"

namespace llmprof::kernels::cpu {

// Heads of `head` elements, rotated in place: halves (a, b) become (a cos - b sin, b cos + a sin).
struct RopeArrays {
  void* x = nullptr;                   // rows of `stride` elements, which begin with the heads
  const float* table = nullptr;        // [positions][2][head / 2]: cosines, then sines
  const int32_t* positions = nullptr;  // of each row; null: its number
  int64_t stride = 0, heads = 0, head = 0;
};

// `wide`: elements, fp32 or bf16. codes: e4m3 (device/elements.h).
struct QuantisedArrays {
  void* wide = nullptr;
  uint8_t* codes = nullptr;
  float* scales = nullptr;  // one of each row
  int64_t columns = 0;
};

// Each works on rows [first, last).
struct MoveKernels {
  std::string_view name;  // "own AVX-512"
  void (*rope)(const RopeArrays& arrays, int64_t first, int64_t last);
  // codes = wide / scale, scale = max |wide| / 448.
  void (*quantise)(const QuantisedArrays& arrays, int64_t first, int64_t last);
  // wide = codes * scale.
  void (*dequantise)(const QuantisedArrays& arrays, int64_t first, int64_t last);
  // With stores that pass by the caches; of columns in multiples of kStreamedColumns and arrays at multiples of 64
  // bytes. Null where the width has no such stores.
  void (*dequantise_streaming)(const QuantisedArrays& arrays, int64_t first, int64_t last);
};
constexpr int64_t kStreamedColumns = 32;
// Widest first. Of fp32 or bf16.
std::vector<MoveKernels> move_kernels(const device::cpu::Instructions& instructions, DType dtype);

}  // namespace llmprof::kernels::cpu
