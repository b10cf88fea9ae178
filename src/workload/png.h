// Pictures in the PNG format: 8 bits a channel, grey, RGB or either with alpha, every filter, not interlaced. That is
// what the shipped picture and most others are; anything else is an error that says so.
//
// Reads untrusted bytes: sizes are bounded before memory is taken, every checksum is compared, nothing recurses.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"

namespace llmprof::workload {

struct Image {
  int width = 0, height = 0;
  std::vector<uint8_t> rgb;  // [height, width, 3]; grey is repeated, alpha dropped
};

constexpr int kPngSideMax = 16384;
constexpr int64_t kPngPixelsMax = int64_t{1} << 26;

// `where` names the bytes in errors.
Result<Image> decode_png(std::span<const uint8_t> bytes, const std::string& where);

}  // namespace llmprof::workload
