#include "workload/bundle.h"

#include <zlib.h>

#include <cassert>
#include <charconv>
#include <string_view>

#include "base/embed_bytes.h"

LLMPROF_EMBED_BYTES(llmprof_workload_image, LLMPROF_WORKLOAD_FOLDER "/image.rgb.zlib")
LLMPROF_EMBED_BYTES(llmprof_workload_prompt, LLMPROF_WORKLOAD_FOLDER "/prompt.txt")

namespace llmprof::workload {

Image bundle_image() {
  Image image{640, 480, std::vector<uint8_t>(size_t{640} * 480 * 3)};
  uLongf size = image.rgb.size();
  // The program's own bytes: what does not unpack was changed after the build.
  const int result = uncompress(image.rgb.data(), &size, reinterpret_cast<const Bytef*>(llmprof_workload_image),
                                static_cast<uLong>(llmprof_workload_image_end - llmprof_workload_image));
  assert(result == Z_OK && size == image.rgb.size());
  static_cast<void>(result);
  return image;
}

std::vector<int32_t> bundle_prompt() {
  std::vector<int32_t> ids;
  const char* at = llmprof_workload_prompt;
  while (at < llmprof_workload_prompt_end) {
    int32_t id = 0;
    const std::from_chars_result read = std::from_chars(at, llmprof_workload_prompt_end, id);
    if (read.ec == std::errc()) ids.push_back(id);
    at = read.ptr + 1;
  }
  return ids;
}

std::vector<int32_t> prompt_of(int sequence, int64_t count, int64_t vocabulary) {
  static const std::vector<int32_t> all = bundle_prompt();
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < count; ++i)
    ids.push_back(static_cast<int32_t>(all[static_cast<size_t>(i + sequence) % all.size()] % vocabulary));
  return ids;
}

}  // namespace llmprof::workload
