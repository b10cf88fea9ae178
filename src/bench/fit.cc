#include "bench/fit.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text_table.h"

namespace llmprof::bench {
namespace {

constexpr int64_t kReservedBytesMax = int64_t{512} << 20;
constexpr int64_t kReservedPart = 16;  // of what is free, on small devices

constexpr int kHalvings = 40;

// What is advised must be taken by the kernels too, which want whole packs and tiles of the larger axes.
constexpr int64_t kTile = 64, kTiledFrom = 256;
int64_t in_tiles(int64_t value) { return value < kTiledFrom ? value : value / kTile * kTile; }

void set_axis(kernels::OpParams& params, std::string_view axis, int64_t value) {
  for (auto& [name, now] : params.axes)
    if (name == axis) now = value;
}

// All axes made smaller by one factor, until it fits: " --m 54720 --n 54720".
std::string fitting_axes(const kernels::Operation& operation, const kernels::OpParams& params, int64_t bytes) {
  const auto scaled = [&](double factor) {
    kernels::OpParams smaller = params;
    for (auto& [name, value] : smaller.axes)
      value = in_tiles(std::max<int64_t>(1, static_cast<int64_t>(static_cast<double>(value) * factor)));
    return smaller;
  };
  double low = 0, high = 1;
  for (int step = 0; step < kHalvings; ++step) {
    const double middle = (low + high) / 2;
    (operation.footprint_bytes(scaled(middle)) <= bytes ? low : high) = middle;
  }
  std::string out;
  for (const auto& [name, value] : scaled(low).axes) out += fmt::format(" {} {}", option_of(name), value);
  return out;
}

}  // namespace

std::string option_of(std::string_view axis) {
  std::string out = "--";
  for (const char c : axis) out += c == '_' ? '-' : c;
  return out;
}

int64_t reserved_bytes(const device::Device& device) {
  return std::min(kReservedBytesMax, device.free_bytes() / kReservedPart);
}

std::string_view growing_axis(const kernels::Operation& operation, const kernels::OpParams& params) {
  std::string_view best;
  double most = 0;
  for (const kernels::Axis& axis : operation.axes) {
    const double growth = static_cast<double>(params.axis(axis.name)) / static_cast<double>(axis.usual);
    if (growth > most) best = axis.name, most = growth;
  }
  return best;
}

std::optional<int64_t> largest_fitting(const kernels::Operation& operation, kernels::OpParams params,
                                       std::string_view axis, int64_t bytes) {
  const auto fits = [&](int64_t value) {
    set_axis(params, axis, value);
    return operation.footprint_bytes(params) <= bytes;
  };
  int64_t low = 1, high = params.axis(axis);
  if (high < 1 || !fits(low)) return std::nullopt;
  if (fits(high)) return high;
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    (fits(middle) ? low : high) = middle;
  }
  return low;
}

std::optional<std::string> does_not_fit(const device::Device& device, const kernels::Operation& operation,
                                        const kernels::OpParams& params) {
  const int64_t needed = operation.footprint_bytes(params), available = device.free_bytes() - reserved_bytes(device);
  if (needed <= available) return std::nullopt;
  std::string text = fmt::format("needs {}, {} of {} are free", format_bytes(static_cast<double>(needed)),
                                 format_bytes(static_cast<double>(device.free_bytes())),
                                 format_bytes(static_cast<double>(device.identity().memory_bytes)));
  const std::string_view first = growing_axis(operation, params);
  if (const std::optional<int64_t> fits = largest_fitting(operation, params, first, available))
    return text + fmt::format("; the largest {} that fits: {}", option_of(first), in_tiles(*fits));
  for (const kernels::Axis& axis : operation.axes) {
    if (const std::optional<int64_t> fits = largest_fitting(operation, params, axis.name, available))
      return text + fmt::format("; the largest {} that fits: {}", option_of(axis.name), in_tiles(*fits));
  }
  return text + "; it fits with" + fitting_axes(operation, params, available);
}

}  // namespace llmprof::bench
