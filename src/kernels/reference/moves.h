// Operators that move each element about once: rotary positions, gather, append and 8-bit rows. What they are held
// against, and the inputs that only they need.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "device/device.h"
#include "kernels/op.h"
#include "kernels/reference/rows.h"

namespace llmprof::kernels {

// Cosines, then sines, of each token: [tokens][2][head / 2], angles token * 10000^(-2 i / head). True angles, since
// random factors would let numbers that are rotated in place grow with every execution.
std::vector<float> rope_table(int64_t tokens, int64_t head);
// `x` was filled with `before` and rotated once; `table` is of fp32 in memory.
Result<Check> check_rope(Device& device, const Buffer& x, const Fill& before, const Buffer& table, int64_t tokens,
                         int64_t heads, int64_t head, uint64_t seed);

// out[i] = table[index[i]], bit by bit.
Result<Check> check_gathered(Device& device, const Buffer& out, const Buffer& table, const Buffer& index, DType dtype,
                             int64_t columns, int64_t rows, uint64_t seed);

// The slot of each token in a cache of kSlotsPerToken times as many, each slot at most once: two tokens in one slot
// would leave it to chance which of them is there.
constexpr int64_t kSlotsPerToken = 4;
std::vector<int32_t> append_slots(int64_t tokens, int set);
// 64 tokens or more are in their slots, bit by bit.
Result<Check> check_appended(Device& device, const Buffer& cache, const Buffer& in, const std::vector<int32_t>& slots,
                             DType dtype, int64_t columns);

// Rows of fp8 with a scale each: scale = max |x| / 448 (1 of a row of zeros), out = x / scale.
struct QuantisedRows {
  const Buffer& codes;   // [rows][columns] of fp8
  const Buffer& scales;  // [rows] of fp32
  int64_t rows = 1, columns = 1;
};
Result<Check> check_quantised(Device& device, const Buffer& x, DType dtype, const QuantisedRows& of, uint64_t seed);
// out = code * scale.
Result<Check> check_dequantised(Device& device, const Buffer& out, DType dtype, const QuantisedRows& of, uint64_t seed);

}  // namespace llmprof::kernels
