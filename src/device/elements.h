// Elements of tensors as numbers: how each type is stored, and how it rounds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/dtype.h"

namespace llmprof::device {

// Nearest, ties to even; infinities and NaN are kept where the format has them. fp8 is e4m3, as LLMs use it for weights
// and activations: no infinity, what is too large becomes 448.
uint16_t to_bf16(float value);
uint16_t to_fp16(float value);
uint8_t to_fp8(float value);
float from_bf16(uint16_t bits);
float from_fp16(uint16_t bits);
float from_fp8(uint8_t bits);
// e2m1, in the low four bits: 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives. Two lie in a byte, the first in its low
// half.
float from_fp4(uint8_t bits);

// fp64, fp32, tf32, fp16, bf16, fp8, fp4, int8, int32.
bool has_elements(DType dtype);
// Of a type that has_elements. `data` need not be aligned.
double element_at(DType dtype, const void* data, size_t index);
void elements_to_double(DType dtype, const void* data, std::span<double> out);
// All bits set: what kPoison leaves. -1 in an integer type.
bool is_poison(DType dtype, const void* data, size_t index);
// The first element of [first, count) that is poison, `count` if none is.
size_t next_poison(DType dtype, const void* data, size_t first, size_t count);

}  // namespace llmprof::device
