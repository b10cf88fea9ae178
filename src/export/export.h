// A recording for other tools: `llmprof export`. Every format writes the whole trace, imported and derived tables, row
// by row as it goes: what it needs beside the trace is a buffer and, for Perfetto, the order of one track's slices.
//
// What is written has its name only when it is complete: until then it stands beside it under a name of its own
// (destination.h). Texts that are no UTF-8 have U+FFFD in place of the bytes that are none, in every format.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "trace/trace.h"

namespace llmprof {

struct ExportFormat {
  std::string_view name;         // what --to takes
  std::string_view description;  // one line
  bool folder;                   // -o names a folder
  bool seeks;                    // what is written must be a file, no pipe
  Status (*write)(const Trace& trace, const std::string& path);
};

// Every format, in one constexpr array (registry.cc).
std::span<const ExportFormat> export_formats();
const ExportFormat* find_export_format(std::string_view name);

// Whether `path` can take it, before a long recording is read: the error that writing would end with.
Status check_export_path(const ExportFormat& format, const std::string& path);

}  // namespace llmprof
