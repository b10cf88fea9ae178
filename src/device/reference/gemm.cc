#include "device/reference/gemm.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "device/elements.h"
#include "device/reference/compare.h"

namespace llmprof::device {
namespace {

constexpr int64_t kSampled = 64;
// Products with no more terms than this are compared as a whole.
constexpr double kWholeTerms = 1e8;
constexpr int64_t kPieceBytes = int64_t{16} << 20;

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
Term dot(const double* a, const double* w, int64_t k) {
  Term term;
  for (int64_t i = 0; i < k; ++i) {
    const double product = a[i] * w[i];
    term.sum += product;
    term.absolute += std::fabs(product);
    term.squares += product * product;
  }
  return term;
}

// A -1 of an integer product may be right: only then the element itself is computed.
Status check_written(Device& device, const GemmOperands& of, Comparison& comparison) {
  const bool integer = of.out_dtype == DType::kInt32;
  const auto element_bytes = static_cast<int64_t>(dtype_bytes(of.out_dtype));
  const int64_t total = of.m * of.n, piece = kPieceBytes / element_bytes;
  std::vector<char> data(static_cast<size_t>(std::min(piece, total) * element_bytes));
  for (int64_t first = 0; first < total; first += piece) {
    const int64_t count = std::min(piece, total - first);
    LLMPROF_CHECK(device.download(of.out, static_cast<size_t>(first * element_bytes), data.data(),
                                  static_cast<size_t>(count * element_bytes)));
    for (int64_t i = 0; i < count; ++i) {
      if (!is_poison(of.out_dtype, data.data(), static_cast<size_t>(i))) continue;
      const int64_t element = first + i;
      if (integer) {
        LLMPROF_ASSIGN(const std::vector<double> a, download_rows(device, of.a, of.dtype, of.k, {element / of.n}));
        LLMPROF_ASSIGN(const std::vector<double> w, download_rows(device, of.w, of.dtype, of.k, {element % of.n}));
        if (dot(a.data(), w.data(), of.k).sum == -1) continue;
      }
      comparison.add_unwritten(element);
    }
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

Result<Check> check_gemm(Device& device, const GemmOperands& of, uint64_t seed) {
  Comparison comparison(rel_l2_limit(of.dtype));
  LLMPROF_CHECK(check_written(device, of, comparison));
  const double terms = static_cast<double>(of.m) * static_cast<double>(of.n) * static_cast<double>(of.k);
  const bool whole = terms <= kWholeTerms;
  const std::vector<int64_t> rows = sampled_indices(of.m, whole ? of.m : kSampled, seed);
  const std::vector<int64_t> columns = sampled_indices(of.n, whole ? of.n : kSampled, seed + 1);
  LLMPROF_ASSIGN(const std::vector<double> a, download_rows(device, of.a, of.dtype, of.k, rows));
  LLMPROF_ASSIGN(const std::vector<double> w, download_rows(device, of.w, of.dtype, of.k, columns));
  LLMPROF_ASSIGN(const std::vector<double> out, download_rows(device, of.out, of.out_dtype, of.n, rows));
  const Rounding rounding = rounding_of(of.dtype, of.out_dtype);
  for (size_t i = 0; i < rows.size(); ++i) {
    for (size_t j = 0; j < columns.size(); ++j) {
      const Term term = dot(a.data() + i * static_cast<size_t>(of.k), w.data() + j * static_cast<size_t>(of.k), of.k);
      const double reference = of.scale * term.sum;
      comparison.add(
          out[i * static_cast<size_t>(of.n) + static_cast<size_t>(columns[j])], reference,
          element_tolerance(rounding, reference, of.scale * term.absolute, of.scale * std::sqrt(term.squares)),
          rows[i] * of.n + columns[j]);
    }
  }
  return comparison.finish();
}

}  // namespace llmprof::device
