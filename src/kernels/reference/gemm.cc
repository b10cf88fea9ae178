#include "kernels/reference/gemm.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "base/parallel.h"
#include "device/elements.h"
#include "device/fill.h"
#include "kernels/reference/compare.h"

namespace llmprof::kernels {
namespace {

constexpr int64_t kSampled = 64;
// Rows of weights that are looked at, of all groups together.
constexpr int64_t kSampledWeights = 512;
// Products with no more terms than this are compared as a whole.
constexpr double kWholeTerms = 1e8, kWholeOutputs = 1e6;
// Outputs that are looked at for having been written: of more bytes, this many of whole rows.
constexpr int64_t kWrittenBytes = int64_t{8} << 20;
constexpr int64_t kWrittenRowsMin = 64;
constexpr int64_t kColumnBytes = int64_t{16} << 20;

// Rows `rows` of a row-major matrix of `columns`.
Result<std::vector<double>> download_rows(Device& device, const Buffer& buffer, DType dtype, int64_t columns,
                                          const std::vector<int64_t>& rows) {
  const auto row_bytes = static_cast<size_t>(static_cast<double>(columns) * dtype_bytes(dtype));
  std::vector<double> values(rows.size() * static_cast<size_t>(columns));
  std::vector<char> row(row_bytes);
  for (size_t i = 0; i < rows.size(); ++i) {
    LLMPROF_CHECK(device.download(buffer, static_cast<size_t>(rows[i]) * row_bytes, row.data(), row_bytes));
    device::elements_to_double(dtype, row.data(),
                               {values.data() + i * static_cast<size_t>(columns), static_cast<size_t>(columns)});
  }
  return values;
}

// Columns `columns` of such a matrix, one after the other. Every row of it is read.
Result<std::vector<double>> download_columns(Device& device, const Buffer& buffer, DType dtype, int64_t rows,
                                             int64_t columns, const std::vector<int64_t>& wanted) {
  const size_t row_bytes = static_cast<size_t>(static_cast<double>(columns) * dtype_bytes(dtype));
  std::vector<double> values(wanted.size() * static_cast<size_t>(rows));
  // Many rows at once: a download costs ten microseconds, however little it brings.
  const int64_t each = std::max<int64_t>(1, kColumnBytes / static_cast<int64_t>(row_bytes));
  std::vector<char> some(static_cast<size_t>(std::min(each, rows)) * row_bytes);
  for (int64_t first = 0; first < rows; first += each) {
    const size_t count = static_cast<size_t>(std::min(each, rows - first));
    LLMPROF_CHECK(device.download(buffer, static_cast<size_t>(first) * row_bytes, some.data(), count * row_bytes));
    for (size_t row = 0; row < count; ++row)
      for (size_t i = 0; i < wanted.size(); ++i)
        values[i * static_cast<size_t>(rows) + static_cast<size_t>(first) + row] =
            device::element_at(dtype, some.data() + row * row_bytes, static_cast<uint64_t>(wanted[i]));
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

int64_t group_of(const ops::Product& product, int64_t row) {
  return std::upper_bound(product.first_row.begin(), product.first_row.end(), row) - product.first_row.begin() - 1;
}

// Poison in [first, first + count). A -1 of an integer product may be right: only then the element itself is computed.
Status check_stretch(Device& device, const GemmOperands& of, int64_t first, int64_t count, std::vector<char>& data,
                     Comparison& comparison) {
  const ops::Product& product = of.product;
  const auto element_bytes = static_cast<int64_t>(dtype_bytes(product.out_dtype));
  data.resize(static_cast<size_t>(count * element_bytes));
  LLMPROF_CHECK(device.download(of.out, static_cast<size_t>(first * element_bytes), data.data(), data.size()));
  const auto end = static_cast<size_t>(count);
  for (size_t i = 0; (i = device::next_poison(product.out_dtype, data.data(), i, end)) < end; ++i) {
    const int64_t element = first + static_cast<int64_t>(i);
    if (product.out_dtype == DType::kInt32) {
      const int64_t row = element / product.n, k = product.k;
      const int64_t weights = group_of(product, row) * product.n + element % product.n;
      LLMPROF_ASSIGN(const std::vector<double> a, download_rows(device, of.a, product.dtype, k, {row}));
      LLMPROF_ASSIGN(const std::vector<double> w, download_rows(device, of.w, product.dtype, k, {weights}));
      if (dot(a.data(), w.data(), k).sum == -1) continue;
    }
    comparison.add_unwritten(element);
  }
  return {};
}

Status check_written(Device& device, const GemmOperands& of, uint64_t seed, Comparison& comparison) {
  const int64_t m = of.product.rows(), n = of.product.n;
  const auto row_bytes = static_cast<int64_t>(static_cast<double>(n) * dtype_bytes(of.product.out_dtype));
  std::vector<char> data;
  if (m * row_bytes <= kWrittenBytes) return check_stretch(device, of, 0, m * n, data, comparison);
  // One row of each band, at a random place in it.
  const int64_t bands = std::min(m, std::max(kWrittenRowsMin, kWrittenBytes / row_bytes));
  for (int64_t band = 0; band < bands; ++band) {
    const int64_t first = m * band / bands, rows = m * (band + 1) / bands - first;
    const auto moved =
        static_cast<int64_t>(device::fill_hash(seed + 2, static_cast<uint64_t>(band)) % static_cast<uint64_t>(rows));
    const int64_t row = band == 0 ? 0 : band + 1 == bands ? m - 1 : first + moved;
    LLMPROF_CHECK(check_stretch(device, of, row * n, n, data, comparison));
  }
  return {};
}

// Elements `at` of a vector; `otherwise` where there is none.
Result<std::vector<double>> download_elements(Device& device, const Buffer* buffer, DType dtype, int64_t size,
                                              const std::vector<int64_t>& at, double otherwise) {
  if (buffer == nullptr) return std::vector<double>(at.size(), otherwise);
  LLMPROF_ASSIGN(const std::vector<double> all, download_rows(device, *buffer, dtype, size, {0}));
  std::vector<double> values;
  for (const int64_t i : at) values.push_back(all[static_cast<size_t>(i)]);
  return values;
}

double gelu(double x) { return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }
// The steepest that GELU gets, and what libraries' tanh is off by: a GPU's instruction has 11 bits.
constexpr double kGeluSlope = 1.13, kTanhError = 0x1p-11;

}  // namespace

Result<GemmExpected> expect_gemm(Device& device, const GemmOperands& of, uint64_t seed) {
  const ops::Product& product = of.product;
  const int64_t n = product.n;
  const double outputs = static_cast<double>(product.rows()) * static_cast<double>(n);
  const bool whole = outputs * static_cast<double>(product.k) <= kWholeTerms && outputs <= kWholeOutputs;
  const int64_t columns_max = std::max<int64_t>(kSampledWeights / std::min(product.groups(), kSampled), 8);
  GemmExpected expected;
  expected.rows = sampled_indices(product.rows(), whole ? product.rows() : kSampled, seed);
  expected.columns = sampled_indices(n, whole ? n : std::min(kSampled, columns_max), seed + 1);
  LLMPROF_ASSIGN(const std::vector<double> a, download_rows(device, of.a, product.dtype, product.k, expected.rows));
  // Of each group that has one of the rows.
  std::map<int64_t, std::vector<double>> weights;
  for (const int64_t row : expected.rows) {
    const int64_t group = group_of(product, row);
    if (weights.count(group) != 0) continue;
    if (of.w_across) {
      LLMPROF_ASSIGN(weights[group], download_columns(device, of.w, product.dtype, product.k, n, expected.columns));
      continue;
    }
    std::vector<int64_t> at;
    for (const int64_t column : expected.columns) at.push_back(group * n + column);
    LLMPROF_ASSIGN(weights[group], download_rows(device, of.w, product.dtype, product.k, at));
  }
  LLMPROF_ASSIGN(const std::vector<double> row_scales,
                 download_elements(device, of.row_scales, DType::kFp32, product.rows(), expected.rows, 1));
  LLMPROF_ASSIGN(const std::vector<double> column_scales,
                 download_elements(device, of.column_scales, DType::kFp32, n, expected.columns, 1));
  LLMPROF_ASSIGN(const std::vector<double> bias,
                 download_elements(device, of.bias, product.out_dtype, n, expected.columns, 0));
  std::vector<double> residual;
  if (of.residual != nullptr) {
    LLMPROF_ASSIGN(residual, download_rows(device, *of.residual, product.out_dtype, n, expected.rows));
  }
  // Integers are exact until they are scaled.
  const Rounding rounding =
      rounding_of(product.scales && product.dtype == DType::kInt8 ? DType::kFp32 : product.dtype, product.out_dtype);
  const size_t columns = expected.columns.size(), k = static_cast<size_t>(product.k);
  expected.reference.resize(expected.rows.size() * columns);
  expected.tolerance.resize(expected.reference.size());
  parallel_for(expected.rows.size(), [&](size_t i) {
    const std::vector<double>& w = weights.at(group_of(product, expected.rows[i]));
    for (size_t j = 0; j < columns; ++j) {
      const Term term = dot(a.data() + i * k, w.data() + j * k, product.k);
      const double scale = of.scale * row_scales[i] * column_scales[j];
      double reference = scale * term.sum + bias[j];
      double terms = std::fabs(scale) * term.absolute + std::fabs(bias[j]);
      const double squares = std::fabs(scale) * std::sqrt(term.squares);
      double extra = 0;
      if (product.gelu) {
        extra = kTanhError * std::fabs(reference);
        terms *= kGeluSlope;
        reference = gelu(reference);
      }
      if (!residual.empty()) {
        const double added = residual[i * static_cast<size_t>(n) + static_cast<size_t>(expected.columns[j])];
        reference += added;
        terms += std::fabs(added);
      }
      expected.reference[i * columns + j] = reference;
      expected.tolerance[i * columns + j] = element_tolerance(rounding, reference, terms, squares) + extra;
    }
  });
  return expected;
}

Result<Check> check_gemm(Device& device, const GemmOperands& of, const GemmExpected& expected) {
  const ops::Product& product = of.product;
  const double limit = rel_l2_limit(product.scales && product.dtype == DType::kInt8 ? DType::kBf16 : product.dtype);
  Comparison comparison(product.gelu ? std::max(limit, kTanhError) : limit);
  LLMPROF_CHECK(check_written(device, of, static_cast<uint64_t>(product.k), comparison));
  LLMPROF_ASSIGN(const std::vector<double> out,
                 download_rows(device, of.out, product.out_dtype, product.n, expected.rows));
  const size_t columns = expected.columns.size();
  for (size_t i = 0; i < expected.rows.size(); ++i) {
    for (size_t j = 0; j < columns; ++j)
      comparison.add(out[i * static_cast<size_t>(product.n) + static_cast<size_t>(expected.columns[j])],
                     expected.reference[i * columns + j], expected.tolerance[i * columns + j],
                     expected.rows[i] * product.n + expected.columns[j]);
  }
  return comparison.finish();
}

Result<Check> check_gemm(Device& device, const GemmOperands& of, uint64_t seed) {
  LLMPROF_ASSIGN(const GemmExpected expected, expect_gemm(device, of, seed));
  return check_gemm(device, of, expected);
}

}  // namespace llmprof::kernels
