#include "kernels/reference/memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <vector>

#include "base/parallel.h"
#include "device/elements.h"
#include "device/fill.h"
#include "kernels/reference/compare.h"

namespace llmprof::kernels {
namespace {

constexpr int64_t kPiece = int64_t{4} << 20;
constexpr int64_t kSummed = int64_t{1} << 16;

Status download_piece(Device& device, const Buffer& buffer, int64_t first, int64_t count, std::vector<float>& to) {
  to.resize(static_cast<size_t>(count));
  return device.download(buffer, static_cast<size_t>(first) * 4, to.data(), static_cast<size_t>(count) * 4);
}

void compare_element(Comparison& comparison, const std::vector<float>& out, size_t i, double reference,
                     double tolerance, int64_t index) {
  if (device::is_poison(DType::kFp32, out.data(), i))
    comparison.add_unwritten(index);
  else
    comparison.add(static_cast<double>(out[i]), reference, tolerance, index);
}

}  // namespace

Result<Check> check_read(Device& device, const Buffer& a, const Buffer& out, int64_t count) {
  uint32_t sum = 0, found = 0;
  std::vector<float> data;
  for (int64_t first = 0; first < count; first += kPiece) {
    LLMPROF_CHECK(download_piece(device, a, first, std::min(kPiece, count - first), data));
    for (const float& value : data) {
      uint32_t word = 0;
      std::memcpy(&word, &value, 4);
      sum += word;
    }
  }
  LLMPROF_CHECK(device.download(out, 0, &found, 4));
  Check check;
  check.compared = 1;
  check.status = found == sum ? CheckStatus::kPassed : CheckStatus::kFailed;
  if (found != sum) {
    check.note = fmt::format("the words add up to {:#010x}, expected {:#010x}", found, sum);
    check.worst_over_tolerance = std::numeric_limits<double>::infinity();
    check.rel_l2 = 1;
  }
  return check;
}

Result<Check> check_write(Device& device, const Buffer& out, float value, int64_t count) {
  Comparison comparison(0);
  std::vector<float> written;
  for (const Window& window : compared_windows(count)) {
    LLMPROF_CHECK(download_piece(device, out, window.first, window.count, written));
    for (size_t i = 0; i < written.size(); ++i)
      compare_element(comparison, written, i, static_cast<double>(value), 0, window.first + static_cast<int64_t>(i));
  }
  Check check = comparison.finish();
  // One value everywhere is what was asked for, and it was not there before.
  if (check.status == CheckStatus::kMistrusted) {
    check.status = CheckStatus::kPassed;
    check.note.clear();
  }
  return check;
}

Result<Check> check_copy(Device& device, const Buffer& a, const Buffer& out, int64_t count) {
  Comparison comparison(0);
  std::vector<float> source, written;
  for (const Window& window : compared_windows(count)) {
    LLMPROF_CHECK(download_piece(device, a, window.first, window.count, source));
    LLMPROF_CHECK(download_piece(device, out, window.first, window.count, written));
    for (size_t i = 0; i < written.size(); ++i)
      compare_element(comparison, written, i, static_cast<double>(source[i]), 0,
                      window.first + static_cast<int64_t>(i));
  }
  return comparison.finish();
}

Result<Check> check_triad(Device& device, const Buffer& a, const Buffer& b, const Buffer& out, float value,
                          int64_t count) {
  Comparison comparison(rel_l2_limit(DType::kFp32));
  std::vector<float> left, right, written;
  for (const Window& window : compared_windows(count)) {
    LLMPROF_CHECK(download_piece(device, a, window.first, window.count, left));
    LLMPROF_CHECK(download_piece(device, b, window.first, window.count, right));
    LLMPROF_CHECK(download_piece(device, out, window.first, window.count, written));
    for (size_t i = 0; i < written.size(); ++i) {
      const double product = static_cast<double>(value) * static_cast<double>(right[i]);
      const double reference = static_cast<double>(left[i]) + product;
      // The product and the sum are rounded once each at most.
      const double tolerance = 0x1p-24 * (std::fabs(product) + std::fabs(reference)) * 1.001;
      compare_element(comparison, written, i, reference, tolerance, window.first + static_cast<int64_t>(i));
    }
  }
  return comparison.finish();
}

uint32_t sum_of_words(const Fill& fill, int64_t count) {
  std::atomic<uint32_t> sum{0};
  const auto pieces = static_cast<size_t>((count + kSummed - 1) / kSummed);
  parallel_for(pieces, [&](size_t piece) {
    const int64_t first = static_cast<int64_t>(piece) * kSummed;
    std::vector<uint32_t> words(static_cast<size_t>(std::min(kSummed, count - first)));
    device::fill_elements(fill, static_cast<uint64_t>(first), words.size(), words.data());
    uint32_t part = 0;
    for (const uint32_t word : words) part += word;
    sum += part;
  });
  return sum;
}

}  // namespace llmprof::kernels
