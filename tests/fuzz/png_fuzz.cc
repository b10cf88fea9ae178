// Any bytes as a picture: decoded, or an error with a sentence. What is decoded has the pixels that its size promises.
#include <cstddef>
#include <cstdint>

#include "workload/png.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const llmprof::Result<llmprof::workload::Image> image = llmprof::workload::decode_png({data, size}, "fuzz.png");
  if (!image) {
    if (image.error().text().empty()) __builtin_trap();
    return 0;
  }
  if (image->width <= 0 || image->height <= 0) __builtin_trap();
  if (image->rgb.size() != static_cast<size_t>(image->width) * static_cast<size_t>(image->height) * 3) __builtin_trap();
  return 0;
}
