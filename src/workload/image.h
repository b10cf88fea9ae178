// From a picture to the input of a vision encoder, on the host in fp32.
#pragma once

#include <cstdint>
#include <vector>

namespace llmprof::workload {

struct Image {
  int width = 0, height = 0;
  std::vector<uint8_t> rgb;  // [height, width, 3]
};

// [3, size, size], channel after channel, 0 to 255: bicubic (a = -0.5), its support widened by the factor of shrinking
// (antialiased), weights normalised at the edges, first across, then down, not rounded between; then clamped.
//   centre = (i + 0.5) * scale, scale = in / out, support = 2 * max(scale, 1)
//   from = max(0, int(centre - support + 0.5)), to = min(in, int(centre + support + 0.5))
//   weight of j = cubic((j + 0.5 - centre) / max(scale, 1))
std::vector<float> resize(const Image& image, int size);

// [patches, 3 * patch * patch] of [3, size, size]: rows by position, elements by channel, y, x; each (v / 255 - 0.5) /
// 0.5.
std::vector<float> patchify(const std::vector<float>& planes, int size, int patch);

}  // namespace llmprof::workload
