// The numbers that buffers are filled with: a hash of (seed, index), so that any element can be made again anywhere,
// in any order, by a CPU thread or a GPU thread, and every device measures on the same data.
//
//   mix(z)            z ^= z >> 30; z *= 0xbf58476d1ce4e5b9; z ^= z >> 27; z *= 0x94d049bb133111eb; z ^= z >> 31
//                     (finaliser of splitmix64; all arithmetic modulo 2^64)
//   hash(seed, i)     mix(mix(seed) + (i + 1) * 0x9e3779b97f4a7c15); i is the index of the element, not of the byte
//
// kUniform, by the type of the elements:
//   fp32, tf32        u = float(int32(hash >> 40) - 2^23) * 2^-23: multiples of 2^-23 in [-1, 1), exact
//   bf16, fp16        u rounded to nearest, ties to even
//   fp8 (e4m3)        448 * u rounded to nearest, ties to even: the whole range
//   fp64              double(int64(hash >> 11) - 2^52) * 2^-52: multiples of 2^-52 in [-1, 1), exact
//   int8              the top eight bits of the hash as a signed number: the whole range
//   fp4 (e2m1)        the top eight bits of the hash, i being the index of the byte: two elements of the whole range
// kIndex              int32((hash >> 32) * below >> 32), in [0, below)
// kPoison             all bits set
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"
#include "base/result.h"
#include "device/device.h"

namespace llmprof::device {

constexpr uint64_t fill_mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
  return z ^ (z >> 31);
}
constexpr uint64_t fill_hash_mixed(uint64_t mixed_seed, uint64_t index) {
  return fill_mix(mixed_seed + (index + 1) * 0x9e3779b97f4a7c15U);
}
constexpr uint64_t fill_hash(uint64_t seed, uint64_t index) { return fill_hash_mixed(fill_mix(seed), index); }
constexpr float fill_uniform(uint64_t hash) {
  return static_cast<float>(static_cast<int32_t>(hash >> 40) - (1 << 23)) * 0x1p-23F;
}
constexpr double fill_uniform_double(uint64_t hash) {
  return static_cast<double>(static_cast<int64_t>(hash >> 11) - (int64_t{1} << 52)) * 0x1p-52;
}
constexpr int32_t fill_index(uint64_t hash, int64_t below) {
  return static_cast<int32_t>(((hash >> 32) * static_cast<uint64_t>(below)) >> 32);
}

// Error: a kind and type that have no numbers here, kIndex of anything but int32 or with `below` outside [1, 2^31).
Status check_fill(const Fill& fill);
// What one hash makes: an element, of fp4 two.
size_t fill_unit_bytes(DType dtype);
// Units [first, first + count) of a buffer filled with `fill`, which check_fill accepts, written to `out`.
void fill_elements(const Fill& fill, uint64_t first, size_t count, void* out);

}  // namespace llmprof::device
