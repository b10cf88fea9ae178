// What the memory kernels leave behind: all of small arrays, windows spread over large ones (compared_windows).
#pragma once

#include <cstdint>

#include "base/result.h"
#include "device/device.h"
#include "kernels/op.h"

namespace llmprof::kernels {

// Arrays are fp32 of `count` elements.
//   read    out[0] = sum of the words of a as 32-bit integers, modulo 2^32: the order does not matter
//   write   every element of out is `value`
//   copy    out = a
//   triad   out = a + value * b, in one rounding or two
Result<Check> check_read(Device& device, const Buffer& a, const Buffer& out, int64_t count);
Result<Check> check_write(Device& device, const Buffer& out, float value, int64_t count);
Result<Check> check_copy(Device& device, const Buffer& a, const Buffer& out, int64_t count);
Result<Check> check_triad(Device& device, const Buffer& a, const Buffer& b, const Buffer& out, float value,
                          int64_t count);

// The sum of `count` words of a buffer as it was filled, made again by all threads instead of fetched.
uint32_t sum_of_words(const Fill& fill, int64_t count);

}  // namespace llmprof::kernels
