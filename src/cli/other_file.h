// What a file is that `analyze` cannot read, where it is something that people have beside a recording: what llmprof
// itself wrote, or the tables of NVIDIA's profilers.
#pragma once

#include "base/result.h"

namespace llmprof::cli {

// The error to show for a file that no importer took: `error`, or a better one where the file is known.
Error name_other_file(const std::string& path, const Error& error);

}  // namespace llmprof::cli
