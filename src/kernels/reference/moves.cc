#include "kernels/reference/moves.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "device/elements.h"

namespace llmprof::kernels {
namespace {

constexpr double kFp8Largest = 448;

double scale_of(const Row& values) {
  double most = 0;
  for (const double value : values) most = std::max(most, std::fabs(value));
  return most > 0 ? most / kFp8Largest : 1;
}

// A value that is a product of few factors.
void add_product(RowResult& result, double value) {
  result.out.push_back(value);
  result.terms.push_back(std::fabs(value));
}

}  // namespace

std::vector<float> rope_table(int64_t tokens, int64_t head) {
  const int64_t half = head / 2;
  std::vector<float> table(static_cast<size_t>(tokens * 2 * half));
  for (int64_t i = 0; i < half; ++i) {
    const double frequency = std::pow(10000.0, -2.0 * static_cast<double>(i) / static_cast<double>(head));
    for (int64_t token = 0; token < tokens; ++token) {
      const double angle = static_cast<double>(token) * frequency;
      table[static_cast<size_t>(token * 2 * half + i)] = static_cast<float>(std::cos(angle));
      table[static_cast<size_t>(token * 2 * half + half + i)] = static_cast<float>(std::sin(angle));
    }
  }
  return table;
}

Result<Check> check_rope(Device& device, const Buffer& x, const Fill& before, const Buffer& table, int64_t tokens,
                         int64_t heads, int64_t head, uint64_t seed) {
  const RowReader input = rows_as_filled(before, heads * head), angles = rows_of(device, table, DType::kFp32, head);
  return check_rows(device, x, before.dtype, heads * head, tokens, seed, [&](int64_t row) -> Result<RowResult> {
    LLMPROF_ASSIGN(const Row values, input(row));
    LLMPROF_ASSIGN(const Row factors, angles(row));
    return rope_row(values, factors, head);
  });
}

Result<Check> check_gathered(Device& device, const Buffer& out, const Buffer& table, const Buffer& index, DType dtype,
                             int64_t columns, int64_t rows, uint64_t seed) {
  const RowReader values = rows_of(device, table, dtype, columns), at = rows_of(device, index, DType::kInt32, 1);
  return check_rows(
      device, out, dtype, columns, rows, seed,
      [&](int64_t row) -> Result<RowResult> {
        LLMPROF_ASSIGN(const Row chosen, at(row));
        LLMPROF_ASSIGN(Row expected, values(static_cast<int64_t>(chosen[0])));
        Row terms(expected.size(), 0);
        return RowResult{std::move(expected), std::move(terms)};
      },
      true);
}

std::vector<int32_t> append_slots(int64_t tokens, int set) {
  const int64_t all = kSlotsPerToken * tokens;
  int64_t stride = all * 5 / 8 + 1;
  while (std::gcd(stride, all) != 1) ++stride;
  std::vector<int32_t> slots(static_cast<size_t>(tokens));
  for (int64_t token = 0; token < tokens; ++token)
    slots[static_cast<size_t>(token)] = static_cast<int32_t>((token * stride + set) % all);
  return slots;
}

Result<Check> check_appended(Device& device, const Buffer& cache, const Buffer& in, const std::vector<int32_t>& slots,
                             DType dtype, int64_t columns) {
  const RowReader read = rows_of(device, in, dtype, columns), stored = rows_of(device, cache, dtype, columns);
  Check check;
  check.status = CheckStatus::kPassed;
  const int64_t tokens = static_cast<int64_t>(slots.size()), step = std::max<int64_t>(tokens / 64, 1);
  for (int64_t token = 0; token < tokens; token += step) {
    const int64_t slot = slots[static_cast<size_t>(token)];
    LLMPROF_ASSIGN(const Row expected, read(token));
    LLMPROF_ASSIGN(const Row found, stored(slot));
    for (size_t i = 0; i < expected.size(); ++i) {
      ++check.compared;
      if (found[i] == expected[i]) continue;
      check.status = CheckStatus::kFailed;
      check.worst_over_tolerance = INFINITY;
      check.note = fmt::format("element {} of token {} is not in slot {}", i, token, slot);
      return check;
    }
  }
  return check;
}

Result<Check> check_quantised(Device& device, const Buffer& x, DType dtype, const QuantisedRows& of, uint64_t seed) {
  const RowReader input = rows_of(device, x, dtype, of.columns);
  LLMPROF_ASSIGN(Check scales,
                 check_rows(device, of.scales, DType::kFp32, 1, of.rows, seed, [&](int64_t row) -> Result<RowResult> {
                   LLMPROF_ASSIGN(const Row values, input(row));
                   RowResult result;
                   add_product(result, scale_of(values));
                   return result;
                 }));
  // Largest numbers of long random rows are one number in bf16; the codes would not be right without their scales.
  if (scales.status == CheckStatus::kMistrusted) scales.status = CheckStatus::kPassed;
  LLMPROF_ASSIGN(const Check codes, check_rows(device, of.codes, DType::kFp8, of.columns, of.rows, seed,
                                               [&](int64_t row) -> Result<RowResult> {
                                                 LLMPROF_ASSIGN(const Row values, input(row));
                                                 const double scale = scale_of(values);
                                                 RowResult result;
                                                 for (const double value : values) add_product(result, value / scale);
                                                 return result;
                                               }));
  return worse_of(codes, scales);
}

Result<Check> check_dequantised(Device& device, const Buffer& out, DType dtype, const QuantisedRows& of,
                                uint64_t seed) {
  const RowReader codes = rows_of(device, of.codes, DType::kFp8, of.columns);
  const RowReader scales = rows_of(device, of.scales, DType::kFp32, 1);
  return check_rows(device, out, dtype, of.columns, of.rows, seed, [&](int64_t row) -> Result<RowResult> {
    LLMPROF_ASSIGN(const Row values, codes(row));
    LLMPROF_ASSIGN(const Row scale, scales(row));
    RowResult result;
    for (const double value : values) add_product(result, value * scale[0]);
    return result;
  });
}

}  // namespace llmprof::kernels
