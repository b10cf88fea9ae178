#include "workload/image.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace llmprof::workload {
namespace {

struct Taps {
  int first = 0;
  std::vector<float> weights;
};

double cubic(double x) {
  constexpr double a = -0.5;
  x = std::abs(x);
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  if (x < 2) return (((x - 5) * x + 8) * x - 4) * a;
  return 0;
}

std::vector<Taps> taps_of(int in, int out) {
  std::vector<Taps> all(static_cast<size_t>(out));
  const double scale = static_cast<double>(in) / out, stretch = std::max(scale, 1.0), support = 2 * stretch;
  for (int i = 0; i < out; ++i) {
    const double centre = (i + 0.5) * scale;
    Taps& taps = all[static_cast<size_t>(i)];
    taps.first = std::max(0, static_cast<int>(centre - support + 0.5));
    const int last = std::min(in, static_cast<int>(centre + support + 0.5));
    double sum = 0;
    std::vector<double> weights;
    for (int j = taps.first; j < last; ++j) {
      weights.push_back(cubic((j + 0.5 - centre) / stretch));
      sum += weights.back();
    }
    for (const double weight : weights) taps.weights.push_back(static_cast<float>(weight / sum));
  }
  return all;
}

}  // namespace

std::vector<float> resize(const Image& image, int size) {
  const auto out = static_cast<size_t>(size), width = static_cast<size_t>(image.width),
             height = static_cast<size_t>(image.height);
  const std::vector<Taps> across = taps_of(image.width, size), down = taps_of(image.height, size);
  std::vector<float> narrow(3 * height * out);  // [3, height, size]
  for (size_t y = 0; y < height; ++y) {
    const uint8_t* const row = image.rgb.data() + y * width * 3;
    for (size_t x = 0; x < out; ++x) {
      float sums[3] = {0, 0, 0};
      const uint8_t* in = row + static_cast<size_t>(across[x].first) * 3;
      for (const float weight : across[x].weights)
        for (float& sum : sums) sum += weight * static_cast<float>(*in++);
      for (size_t c = 0; c < 3; ++c) narrow[(c * height + y) * out + x] = sums[c];
    }
  }
  std::vector<float> planes(3 * out * out);
  for (size_t c = 0; c < 3; ++c) {
    for (size_t y = 0; y < out; ++y) {
      float* const row = planes.data() + (c * out + y) * out;
      const float* in = narrow.data() + (c * height + static_cast<size_t>(down[y].first)) * out;
      for (const float weight : down[y].weights) {
        for (size_t x = 0; x < out; ++x) row[x] += weight * in[x];
        in += out;
      }
      for (size_t x = 0; x < out; ++x) row[x] = std::clamp(row[x], 0.0F, 255.0F);
    }
  }
  return planes;
}

std::vector<float> patchify(const std::vector<float>& planes, int size, int patch) {
  const int side = size / patch;
  std::vector<float> out;
  out.reserve(planes.size());
  for (int row = 0; row < side; ++row)
    for (int column = 0; column < side; ++column)
      for (int c = 0; c < 3; ++c)
        for (int y = 0; y < patch; ++y) {
          const float* const in = planes.data() + (static_cast<std::ptrdiff_t>(c) * size + row * patch + y) * size +
                                  static_cast<std::ptrdiff_t>(column) * patch;
          for (int x = 0; x < patch; ++x) out.push_back((in[x] / 255 - 0.5F) / 0.5F);
        }
  return out;
}

}  // namespace llmprof::workload
