// What rows of a file are named after.
#pragma once

#include <fmt/format.h>

#include <string>

#include "base/input_file.h"
#include "trace/trace.h"

namespace llmprof {

// The file's name without folders. Files of one name in several folders stay apart.
inline std::string source_name(const InputFile& input, const Trace& trace) {
  std::string file = input.name().substr(input.name().rfind('/') + 1);
  int64_t same = 1;
  for (const std::string& earlier : trace.source.files) same += earlier.substr(earlier.rfind('/') + 1) == file;
  if (same > 1) file += fmt::format(" ({})", same);
  return file;
}

}  // namespace llmprof
