#include "kernels/reference/rows.h"

#include <algorithm>
#include <cmath>

#include "device/elements.h"
#include "device/fill.h"
#include "kernels/reference/compare.h"

namespace llmprof::kernels {
namespace {

// So many rows, or as many as have so many elements, but not fewer than some.
constexpr int64_t kRowsCompared = 64, kElementsSampled = int64_t{1} << 18, kRowsSampledMin = 8;
// Products of a few rounded factors: each adds one rounding.
constexpr double kFactors = 4;

// Half a unit of the last place below the smallest normal number, where rounding is no share of the value any more.
double half_unit_of_subnormals(DType dtype) {
  return dtype == DType::kFp16 ? 0x1p-25 : dtype == DType::kFp8 ? 0x1p-10 : 0;
}

}  // namespace

RowResult rmsnorm_row(const Row& x, const Row& gain, double epsilon) {
  double squares = 0;
  for (const double value : x) squares += value * value;
  const double scale = 1 / std::sqrt(squares / static_cast<double>(x.size()) + epsilon);
  RowResult result;
  for (size_t i = 0; i < x.size(); ++i) {
    result.out.push_back(x[i] * scale * gain[i]);
    result.terms.push_back(kFactors * std::fabs(result.out.back()));
  }
  return result;
}

RowResult layernorm_gelu_row(const Row& x, const Row& gain, const Row& bias, double epsilon) {
  const double count = static_cast<double>(x.size());
  double mean = 0, variance = 0, absolute = 0;
  for (const double value : x) {
    mean += value / count;
    absolute += std::fabs(value) / count;
  }
  for (const double value : x) variance += (value - mean) * (value - mean) / count;
  const double scale = 1 / std::sqrt(variance + epsilon);
  RowResult result;
  for (size_t i = 0; i < x.size(); ++i) {
    const double y = (x[i] - mean) * scale * gain[i] + bias[i];
    const double u = 0.7978845608028654 * (y + 0.044715 * y * y * y);
    result.out.push_back(0.5 * y * (1 + std::tanh(u)));
    // The slope of gelu stays below 1.13; exp(-2 u) is off by its argument's rounding.
    const double terms = (std::fabs(x[i]) + absolute) * scale * std::fabs(gain[i]) + std::fabs(bias[i]);
    result.terms.push_back(2 * terms + std::fabs(result.out.back()) * (kFactors + 3 * std::fabs(u)));
  }
  return result;
}

RowResult softmax_row(const Row& x) {
  const double most = *std::max_element(x.begin(), x.end());
  double sum = 0;
  for (const double value : x) sum += std::exp(value - most);
  RowResult result;
  for (const double value : x) {
    result.out.push_back(std::exp(value - most) / sum);
    // exp is off by its argument's rounding.
    result.terms.push_back(result.out.back() * (2 * kFactors + 2 * std::fabs(value - most)));
  }
  return result;
}

RowResult swiglu_row(const Row& gate_up) {
  const size_t half = gate_up.size() / 2;
  RowResult result;
  for (size_t i = 0; i < half; ++i) {
    const double gate = gate_up[i];
    result.out.push_back(gate / (1 + std::exp(-gate)) * gate_up[half + i]);
    result.terms.push_back(std::fabs(result.out.back()) * (kFactors + 2 * std::fabs(gate)));
  }
  return result;
}

RowResult rope_row(const Row& x, const Row& table, int64_t head) {
  const size_t half = static_cast<size_t>(head) / 2, size = static_cast<size_t>(head);
  RowResult result;
  result.out.resize(x.size());
  result.terms.resize(x.size());
  for (size_t base = 0; base + size <= x.size(); base += size) {
    for (size_t i = 0; i < half; ++i) {
      const double a = x[base + i], b = x[base + half + i], cosine = table[i], sine = table[half + i];
      result.out[base + i] = a * cosine - b * sine;
      result.out[base + half + i] = b * cosine + a * sine;
      result.terms[base + i] = std::fabs(a * cosine) + std::fabs(b * sine);
      result.terms[base + half + i] = std::fabs(b * cosine) + std::fabs(a * sine);
    }
  }
  return result;
}

double rounded_to(DType dtype, double value) {
  const float narrow = static_cast<float>(value);
  switch (dtype) {
    case DType::kFp64:
      return value;
    case DType::kBf16:
      return static_cast<double>(device::from_bf16(device::to_bf16(narrow)));
    case DType::kFp16:
      return static_cast<double>(device::from_fp16(device::to_fp16(narrow)));
    case DType::kFp8:
      return static_cast<double>(device::from_fp8(device::to_fp8(narrow)));
    default:
      return static_cast<double>(narrow);
  }
}

RowReader rows_of(Device& device, const Buffer& buffer, DType dtype, int64_t columns) {
  return [&device, &buffer, dtype, columns](int64_t row) -> Result<Row> {
    const size_t bytes = static_cast<size_t>(static_cast<double>(columns) * dtype_bytes(dtype));
    std::vector<char> data(bytes);
    LLMPROF_CHECK(device.download(buffer, static_cast<size_t>(row) * bytes, data.data(), bytes));
    Row values(static_cast<size_t>(columns));
    device::elements_to_double(dtype, data.data(), values);
    return values;
  };
}

RowReader rows_as_filled(const Fill& fill, int64_t columns) {
  return [fill, columns](int64_t row) -> Result<Row> {
    std::vector<char> data(static_cast<size_t>(static_cast<double>(columns) * dtype_bytes(fill.dtype)));
    device::fill_elements(fill, static_cast<uint64_t>(row * columns), static_cast<size_t>(columns), data.data());
    Row values(static_cast<size_t>(columns));
    device::elements_to_double(fill.dtype, data.data(), values);
    return values;
  };
}

Result<Check> check_rows(Device& device, const Buffer& out, DType dtype, int64_t columns, int64_t rows, uint64_t seed,
                         const std::function<Result<RowResult>(int64_t row)>& expected, bool exact) {
  // The sums are those of fp32, whatever the elements are.
  const Rounding rounding = rounding_of(DType::kFp32, dtype);
  Comparison comparison(exact ? 0 : std::max(rel_l2_limit(dtype), rel_l2_limit(DType::kFp32)));
  const size_t bytes = static_cast<size_t>(static_cast<double>(columns) * dtype_bytes(dtype));
  std::vector<char> data(bytes);
  const int64_t sampled = std::clamp(kElementsSampled / columns, kRowsSampledMin, kRowsCompared);
  for (const int64_t row : sampled_indices(rows, sampled, seed)) {
    LLMPROF_ASSIGN(const RowResult reference, expected(row));
    LLMPROF_CHECK(device.download(out, static_cast<size_t>(row) * bytes, data.data(), bytes));
    for (size_t i = 0; i < static_cast<size_t>(columns); ++i) {
      const int64_t index = row * columns + static_cast<int64_t>(i);
      if (device::is_poison(dtype, data.data(), i)) {
        comparison.add_unwritten(index);
        continue;
      }
      const double tolerance =
          exact ? 0
                : element_tolerance(rounding, reference.out[i], reference.terms[i]) + half_unit_of_subnormals(dtype);
      comparison.add(device::element_at(dtype, data.data(), i), reference.out[i], tolerance, index);
    }
  }
  return comparison.finish();
}

Check worse_of(const Check& a, const Check& b) {
  const auto rank = [](const Check& check) {
    switch (check.status) {
      case CheckStatus::kFailed:
        return 3;
      case CheckStatus::kMistrusted:
        return 2;
      case CheckStatus::kSkipped:
        return 1;
      case CheckStatus::kPassed:
        break;
    }
    return 0;
  };
  Check worse = rank(b) > rank(a) ? b : a;
  worse.compared = a.compared + b.compared;
  worse.worst_over_tolerance = std::max(a.worst_over_tolerance, b.worst_over_tolerance);
  worse.rel_l2 = std::max(a.rel_l2, b.rel_l2);
  return worse;
}

}  // namespace llmprof::kernels
