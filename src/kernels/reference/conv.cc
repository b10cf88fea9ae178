#include "kernels/reference/conv.h"

#include <algorithm>
#include <cmath>

#include "device/elements.h"
#include "kernels/reference/compare.h"

namespace llmprof::kernels {
namespace {

constexpr int64_t kPlacesSampled = 64, kPlacesLookedAt = 1024;

Result<std::vector<double>> download_part(Device& device, const Buffer& buffer, DType dtype, int64_t first,
                                          int64_t count) {
  const size_t element = static_cast<size_t>(dtype_bytes(dtype));
  std::vector<char> data(static_cast<size_t>(count) * element);
  LLMPROF_CHECK(device.download(buffer, static_cast<size_t>(first) * element, data.data(), data.size()));
  std::vector<double> values(static_cast<size_t>(count));
  device::elements_to_double(dtype, data.data(), values);
  return values;
}

// What a filter is laid over: kernel rows of kernel * channels, zeros outside.
Result<std::vector<double>> patch_of(Device& device, const ConvOperands& of, int64_t place) {
  const int64_t q = place % of.out_width(), p = place / of.out_width() % of.out_height();
  const int64_t image = place / of.out_width() / of.out_height();
  const int64_t top = p * of.stride - of.padding, left = q * of.stride - of.padding;
  const int64_t from = std::max<int64_t>(left, 0), to = std::min(left + of.kernel, of.width);
  std::vector<double> patch(static_cast<size_t>(of.kernel * of.kernel * of.channels), 0);
  for (int64_t r = 0; r < of.kernel; ++r) {
    const int64_t row = top + r;
    if (row < 0 || row >= of.height || from >= to) continue;
    LLMPROF_ASSIGN(const std::vector<double> part,
                   download_part(device, of.x, of.dtype, ((image * of.height + row) * of.width + from) * of.channels,
                                 (to - from) * of.channels));
    std::copy(part.begin(), part.end(), patch.begin() + (r * of.kernel + from - left) * of.channels);
  }
  return patch;
}

}  // namespace

Result<ConvExpected> expect_conv(Device& device, const ConvOperands& of, uint64_t seed) {
  ConvExpected expected;
  expected.places = sampled_indices(of.batch * of.out_height() * of.out_width(), kPlacesSampled, seed);
  expected.filters = sampled_indices(of.filters, kPlacesSampled, seed + 1);
  const int64_t size = of.kernel * of.kernel * of.channels;
  std::vector<std::vector<double>> filters;
  for (const int64_t filter : expected.filters) {
    LLMPROF_ASSIGN(std::vector<double> values, download_part(device, of.w, of.dtype, filter * size, size));
    filters.push_back(std::move(values));
  }
  const Rounding rounding = rounding_of(of.dtype, of.dtype);
  for (const int64_t place : expected.places) {
    LLMPROF_ASSIGN(const std::vector<double> patch, patch_of(device, of, place));
    for (const std::vector<double>& filter : filters) {
      double sum = 0, absolute = 0, squares = 0;
      for (size_t i = 0; i < patch.size(); ++i) {
        const double product = patch[i] * filter[i];
        sum += product;
        absolute += std::fabs(product);
        squares += product * product;
      }
      expected.reference.push_back(sum);
      expected.tolerance.push_back(element_tolerance(rounding, sum, absolute, std::sqrt(squares)));
    }
  }
  return expected;
}

Result<Check> check_conv(Device& device, const ConvOperands& of, const ConvExpected& expected) {
  Comparison comparison(rel_l2_limit(of.dtype));
  const size_t element = static_cast<size_t>(dtype_bytes(of.dtype)), row = static_cast<size_t>(of.filters);
  std::vector<char> data(row * element);
  size_t next = 0;
  for (const int64_t place : expected.places) {
    LLMPROF_CHECK(device.download(of.out, static_cast<size_t>(place) * data.size(), data.data(), data.size()));
    for (const int64_t filter : expected.filters) {
      const int64_t index = place * of.filters + filter;
      if (device::is_poison(of.dtype, data.data(), static_cast<size_t>(filter)))
        comparison.add_unwritten(index);
      else
        comparison.add(device::element_at(of.dtype, data.data(), static_cast<size_t>(filter)), expected.reference[next],
                       expected.tolerance[next], index);
      ++next;
    }
  }
  // Stretches of places, for what was never written.
  const int64_t all = of.batch * of.out_height() * of.out_width(), stretch = std::min<int64_t>(all, 16);
  data.resize(row * element * static_cast<size_t>(stretch));
  for (int64_t first = 0, step = std::max<int64_t>(all * stretch / kPlacesLookedAt, stretch); first < all;
       first += step) {
    const int64_t from = std::min(first, all - stretch);
    LLMPROF_CHECK(device.download(of.out, static_cast<size_t>(from) * row * element, data.data(), data.size()));
    const size_t count = row * static_cast<size_t>(stretch);
    for (size_t i = device::next_poison(of.dtype, data.data(), 0, count); i < count;
         i = device::next_poison(of.dtype, data.data(), i + 1, count))
      comparison.add_unwritten(from * of.filters + static_cast<int64_t>(i));
  }
  return comparison.finish();
}

}  // namespace llmprof::kernels
