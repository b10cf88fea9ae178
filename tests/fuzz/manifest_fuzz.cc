// Any bytes as the manifest of a stored run: what is read names files below its folder only, and is written and read
// again the same.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "store/manifest.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const llmprof::Result<llmprof::RunManifest> manifest = llmprof::store::parse_manifest(text, "fuzz.json");
  if (!manifest) {
    if (manifest.error().text().empty()) __builtin_trap();
    return 0;
  }
  if (manifest->number <= 0) __builtin_trap();
  for (const llmprof::StoredFile& file : manifest->files)
    if (file.path.empty() || file.path.front() == '/' || file.path == ".." ||
        file.path.find("/../") != std::string::npos || file.path.starts_with("../") || file.path.ends_with("/.."))
      __builtin_trap();
  const std::string written = llmprof::store::manifest_text(*manifest);
  const llmprof::Result<llmprof::RunManifest> again = llmprof::store::parse_manifest(written, "fuzz.json");
  if (!again || llmprof::store::manifest_text(*again) != written) __builtin_trap();
  return 0;
}
