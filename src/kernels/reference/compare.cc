#include "kernels/reference/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "device/fill.h"

namespace llmprof::kernels {
namespace {

constexpr size_t kReferencesKept = 20'000;

// Share of the most frequent value.
double share_alike(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  size_t longest = 0;
  for (size_t first = 0; first < values.size();) {
    size_t last = first;
    while (last < values.size() && values[last] == values[first]) ++last;
    longest = std::max(longest, last - first);
    first = last;
  }
  return static_cast<double>(longest) / static_cast<double>(values.size());
}

}  // namespace

Rounding rounding_of(DType compute, DType out) {
  Rounding rounding;
  switch (compute) {
    case DType::kFp64:
      rounding.sum = 0x1p-53;
      break;
    case DType::kTf32:
      rounding.sum = 0x1p-24;
      rounding.input = 6 * 0x1p-11;
      break;
    case DType::kFp8:
    case DType::kFp4:
      rounding.sum = 0x1p-14;
      break;
    case DType::kInt8:
    case DType::kInt32:
      break;
    default:
      rounding.sum = 0x1p-24;
  }
  switch (out) {
    case DType::kFp64:
      rounding.out = 0x1p-53;
      break;
    case DType::kFp16:
      rounding.out = 0x1p-11;
      break;
    case DType::kBf16:
      rounding.out = 0x1p-8;
      break;
    case DType::kFp8:
      rounding.out = 0x1p-4;
      break;
    case DType::kInt8:
    case DType::kInt32:
      break;
    default:
      rounding.out = 0x1p-24;
  }
  return rounding;
}

double rel_l2_limit(DType compute) {
  switch (compute) {
    case DType::kFp64:
      return 1e-13;
    case DType::kFp32:
      return 1e-5;
    case DType::kTf32:
      return 1e-3;
    case DType::kFp16:
      return 2e-3;
    case DType::kBf16:
      return 1e-2;
    case DType::kFp8:
    case DType::kFp4:
      return 3e-2;
    default:
      return 0;
  }
}

double element_tolerance(const Rounding& rounding, double reference, double terms, double squares) {
  return rounding.out * std::fabs(reference) + 8 * rounding.sum * terms + rounding.input * squares;
}

void Comparison::add(double out, double reference, double tolerance, int64_t index) {
  ++compared_;
  if (references_.size() < kReferencesKept) references_.push_back(reference);
  const double error = std::fabs(out - reference);
  double over = 0;
  if (!std::isfinite(out))
    over = out == reference ? 0 : std::numeric_limits<double>::infinity();
  else if (error > 0)
    over = tolerance > 0 ? error / tolerance : std::numeric_limits<double>::infinity();
  worst_ = std::max(worst_, over);
  if (over > 1 && ++wrong_ == 1)
    first_wrong_ = fmt::format("element {} is {:.9g}, expected {:.9g} within {:.2g}", index, out, reference, tolerance);
  if (std::isfinite(error)) error_squares_ += error * error;
  reference_squares_ += reference * reference;
}

void Comparison::add_unwritten(int64_t index) {
  if (++unwritten_ == 1) first_unwritten_ = fmt::format("element {} was never written", index);
}

Check Comparison::finish() {
  Check check;
  check.compared = compared_;
  check.worst_over_tolerance = worst_;
  if (reference_squares_ > 0) check.rel_l2 = std::sqrt(error_squares_ / reference_squares_);
  if (unwritten_ > 0) {
    check.status = CheckStatus::kFailed;
    check.note = unwritten_ == 1 ? first_unwritten_ : fmt::format("{}, and {} more", first_unwritten_, unwritten_ - 1);
  } else if (wrong_ > 0) {
    check.status = CheckStatus::kFailed;
    check.note = fmt::format("{}; {} of {} wrong", first_wrong_, wrong_, compared_);
  } else if (compared_ == 0) {
    check.status = CheckStatus::kSkipped;
    check.note = "nothing to compare";
  } else if (check.rel_l2 > rel_l2_max_) {
    check.status = CheckStatus::kFailed;
    check.note = fmt::format("together {:.2g} off the reference, expected at most {:.2g}", check.rel_l2, rel_l2_max_);
  } else if (references_.size() >= 10 && share_alike(references_) > 0.9) {
    check.status = CheckStatus::kMistrusted;
    check.note = "more than 90 % of the reference is one value";
  } else {
    check.status = CheckStatus::kPassed;
  }
  return check;
}

std::vector<Window> compared_windows(int64_t size) {
  constexpr int64_t kWindows = 64, kCount = kWindowed / kWindows;
  if (size <= kWindowed) return {{0, size}};
  std::vector<Window> windows;
  const int64_t last = size - kCount, stride = last / (kWindows - 1);
  for (int64_t i = 0; i < kWindows; ++i) {
    // Moved by less than what lies between two windows.
    const auto moved = static_cast<int64_t>(device::fill_hash(1, static_cast<uint64_t>(i)) %
                                            static_cast<uint64_t>(std::max<int64_t>(stride - kCount, 1)));
    const bool end = i == 0 || i + 1 == kWindows;
    windows.push_back({i + 1 == kWindows ? last : stride * i + (end ? 0 : moved), kCount});
  }
  return windows;
}

std::vector<int64_t> sampled_indices(int64_t size, int64_t count, uint64_t seed) {
  std::vector<int64_t> indices;
  if (size <= count) {
    for (int64_t i = 0; i < size; ++i) indices.push_back(i);
    return indices;
  }
  std::set<int64_t> chosen{0, size - 1};
  for (uint64_t draw = 0; static_cast<int64_t>(chosen.size()) < count; ++draw)
    chosen.insert(static_cast<int64_t>(device::fill_hash(seed, draw) % static_cast<uint64_t>(size)));
  indices.assign(chosen.begin(), chosen.end());
  return indices;
}

}  // namespace llmprof::kernels
