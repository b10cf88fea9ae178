// manifest.json: what makes a folder of the store a run (docs/formats/run-store.md). Written and read by the
// declaration of RunManifest (results/runs.h). Files are anyone's: sizes are bounded, and a value of another type is an
// error.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "results/runs.h"

namespace llmprof::store {

constexpr const char* kManifestName = "manifest.json";

std::string manifest_text(const RunManifest& manifest);
// `path` is for errors only.
Result<RunManifest> parse_manifest(std::string_view text, const std::string& path);
// That of the run in this folder.
Result<RunManifest> read_manifest(const std::string& folder);
// Atomically, and on the disk when it returns.
Status write_manifest(const std::string& folder, const RunManifest& manifest);

}  // namespace llmprof::store
