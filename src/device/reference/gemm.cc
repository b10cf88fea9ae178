#include "device/reference/gemm.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/parallel.h"
#include "device/elements.h"
#include "device/fill.h"
#include "device/reference/compare.h"

namespace llmprof::device {
namespace {

constexpr int64_t kSampled = 64;
// Products with no more terms than this are compared as a whole.
constexpr double kWholeTerms = 1e8, kWholeOutputs = 1e6;
// Outputs that are looked at for having been written: of more bytes, this many of whole rows.
constexpr int64_t kWrittenBytes = int64_t{8} << 20;
constexpr int64_t kWrittenRowsMin = 64;

// Rows `rows` of a row-major matrix of `columns`.
Result<std::vector<double>> download_rows(Device& device, const Buffer& buffer, DType dtype, int64_t columns,
                                          const std::vector<int64_t>& rows) {
  const auto row_bytes = static_cast<size_t>(static_cast<double>(columns) * dtype_bytes(dtype));
  std::vector<double> values(rows.size() * static_cast<size_t>(columns));
  std::vector<char> row(row_bytes);
  for (size_t i = 0; i < rows.size(); ++i) {
    LLMPROF_CHECK(device.download(buffer, static_cast<size_t>(rows[i]) * row_bytes, row.data(), row_bytes));
    elements_to_double(dtype, row.data(),
                       {values.data() + i * static_cast<size_t>(columns), static_cast<size_t>(columns)});
  }
  return values;
}

struct Term {
  double sum = 0, absolute = 0, squares = 0;
};
// Eight sums side by side, so that no addition waits for the one before it.
Term dot(const double* a, const double* w, int64_t k) {
  constexpr int64_t kLanes = 8;
  double sum[kLanes] = {}, absolute[kLanes] = {}, squares[kLanes] = {};
  const int64_t whole = k / kLanes * kLanes;
  for (int64_t i = 0; i < whole; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      const double product = a[i + lane] * w[i + lane];
      sum[lane] += product;
      absolute[lane] += std::fabs(product);
      squares[lane] += product * product;
    }
  }
  for (int64_t i = whole; i < k; ++i) {
    const double product = a[i] * w[i];
    sum[0] += product;
    absolute[0] += std::fabs(product);
    squares[0] += product * product;
  }
  Term term;
  for (int64_t lane = 0; lane < kLanes; ++lane) {
    term.sum += sum[lane];
    term.absolute += absolute[lane];
    term.squares += squares[lane];
  }
  return term;
}

// Poison in [first, first + count). A -1 of an integer product may be right: only then the element itself is computed.
Status check_stretch(Device& device, const GemmOperands& of, int64_t first, int64_t count, std::vector<char>& data,
                     Comparison& comparison) {
  const auto element_bytes = static_cast<int64_t>(dtype_bytes(of.out_dtype));
  data.resize(static_cast<size_t>(count * element_bytes));
  LLMPROF_CHECK(device.download(of.out, static_cast<size_t>(first * element_bytes), data.data(), data.size()));
  const auto end = static_cast<size_t>(count);
  for (size_t i = 0; (i = next_poison(of.out_dtype, data.data(), i, end)) < end; ++i) {
    const int64_t element = first + static_cast<int64_t>(i);
    if (of.out_dtype == DType::kInt32) {
      LLMPROF_ASSIGN(const std::vector<double> a, download_rows(device, of.a, of.dtype, of.k, {element / of.n}));
      LLMPROF_ASSIGN(const std::vector<double> w, download_rows(device, of.w, of.dtype, of.k, {element % of.n}));
      if (dot(a.data(), w.data(), of.k).sum == -1) continue;
    }
    comparison.add_unwritten(element);
  }
  return {};
}

Status check_written(Device& device, const GemmOperands& of, uint64_t seed, Comparison& comparison) {
  const auto row_bytes = static_cast<int64_t>(static_cast<double>(of.n) * dtype_bytes(of.out_dtype));
  std::vector<char> data;
  if (of.m * row_bytes <= kWrittenBytes) return check_stretch(device, of, 0, of.m * of.n, data, comparison);
  // One row of each band, at a random place in it.
  const int64_t bands = std::min(of.m, std::max(kWrittenRowsMin, kWrittenBytes / row_bytes));
  for (int64_t band = 0; band < bands; ++band) {
    const int64_t first = of.m * band / bands, rows = of.m * (band + 1) / bands - first;
    const auto moved =
        static_cast<int64_t>(fill_hash(seed + 2, static_cast<uint64_t>(band)) % static_cast<uint64_t>(rows));
    const int64_t row = band == 0 ? 0 : band + 1 == bands ? of.m - 1 : first + moved;
    LLMPROF_CHECK(check_stretch(device, of, row * of.n, of.n, data, comparison));
  }
  return {};
}

}  // namespace

DType gemm_out_dtype(DType dtype) {
  switch (dtype) {
    case DType::kInt8:
      return DType::kInt32;
    case DType::kFp8:
    case DType::kFp4:
      return DType::kBf16;
    case DType::kTf32:
      return DType::kFp32;
    default:
      return dtype;
  }
}

Result<GemmExpected> expect_gemm(Device& device, const GemmOperands& of, uint64_t seed) {
  const double outputs = static_cast<double>(of.m) * static_cast<double>(of.n);
  const bool whole = outputs * static_cast<double>(of.k) <= kWholeTerms && outputs <= kWholeOutputs;
  GemmExpected expected;
  expected.rows = sampled_indices(of.m, whole ? of.m : kSampled, seed);
  expected.columns = sampled_indices(of.n, whole ? of.n : kSampled, seed + 1);
  LLMPROF_ASSIGN(const std::vector<double> a, download_rows(device, of.a, of.dtype, of.k, expected.rows));
  LLMPROF_ASSIGN(const std::vector<double> w, download_rows(device, of.w, of.dtype, of.k, expected.columns));
  const Rounding rounding = rounding_of(of.dtype, of.out_dtype);
  const size_t columns = expected.columns.size(), k = static_cast<size_t>(of.k);
  expected.reference.resize(expected.rows.size() * columns);
  expected.tolerance.resize(expected.reference.size());
  parallel_for(expected.rows.size(), [&](size_t i) {
    for (size_t j = 0; j < columns; ++j) {
      const Term term = dot(a.data() + i * k, w.data() + j * k, of.k);
      const double reference = of.scale * term.sum;
      expected.reference[i * columns + j] = reference;
      expected.tolerance[i * columns + j] =
          element_tolerance(rounding, reference, of.scale * term.absolute, of.scale * std::sqrt(term.squares));
    }
  });
  return expected;
}

Result<Check> check_gemm(Device& device, const GemmOperands& of, const GemmExpected& expected) {
  Comparison comparison(rel_l2_limit(of.dtype));
  LLMPROF_CHECK(check_written(device, of, static_cast<uint64_t>(of.k), comparison));
  LLMPROF_ASSIGN(const std::vector<double> out, download_rows(device, of.out, of.out_dtype, of.n, expected.rows));
  const size_t columns = expected.columns.size();
  for (size_t i = 0; i < expected.rows.size(); ++i) {
    for (size_t j = 0; j < columns; ++j)
      comparison.add(out[i * static_cast<size_t>(of.n) + static_cast<size_t>(expected.columns[j])],
                     expected.reference[i * columns + j], expected.tolerance[i * columns + j],
                     expected.rows[i] * of.n + expected.columns[j]);
  }
  return comparison.finish();
}

Result<Check> check_gemm(Device& device, const GemmOperands& of, uint64_t seed) {
  LLMPROF_ASSIGN(const GemmExpected expected, expect_gemm(device, of, seed));
  return check_gemm(device, of, expected);
}

}  // namespace llmprof::device
