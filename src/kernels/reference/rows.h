// Operators over rows in fp64: each function computes one row from its inputs, with what the tolerance of each element
// follows from (`terms`: the sum of the absolute values of what was added up for it).
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/result.h"
#include "device/device.h"
#include "kernels/op.h"

namespace llmprof::kernels {

using Row = std::vector<double>;
struct RowResult {
  Row out, terms;
};

// x / sqrt(mean(x^2) + epsilon) * gain.
RowResult rmsnorm_row(const Row& x, const Row& gain, double epsilon);
// (x - mean) / sqrt(variance + epsilon) * gain + bias, then gelu by tanh.
RowResult layernorm_gelu_row(const Row& x, const Row& gain, const Row& bias, double epsilon);
RowResult softmax_row(const Row& x);
// silu(first half) * second half.
RowResult swiglu_row(const Row& gate_up);
// Heads of `head` elements, halves rotated: (a cos - b sin, b cos + a sin). `table`: cosines, then sines, of the row.
RowResult rope_row(const Row& x, const Row& table, int64_t head);

// The number that a type keeps of a value.
double rounded_to(DType dtype, double value);

// One row at a time.
using RowReader = std::function<Result<Row>(int64_t row)>;
RowReader rows_of(Device& device, const Buffer& buffer, DType dtype, int64_t columns);
// Of a buffer as it was filled, whatever became of it.
RowReader rows_as_filled(const Fill& fill, int64_t columns);

// 64 rows (fewer of over 4,096 elements, at least 8), the first and the last among them: `out` against what `expected`
// says. Unwritten elements are poison. `exact`: no rounding is allowed for.
Result<Check> check_rows(Device& device, const Buffer& out, DType dtype, int64_t columns, int64_t rows, uint64_t seed,
                         const std::function<Result<RowResult>(int64_t row)>& expected, bool exact = false);
// The worse of both.
Check worse_of(const Check& a, const Check& b);

}  // namespace llmprof::kernels
