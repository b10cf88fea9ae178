// The formats of export.h, one function each. Internal to src/export.
#pragma once

#include <string>

#include "base/result.h"
#include "trace/trace.h"

namespace llmprof::exporting {

Status write_csv(const Trace& trace, const std::string& path);     // docs/formats/tables.md
Status write_json(const Trace& trace, const std::string& path);    // docs/formats/tables.md
Status write_sqlite(const Trace& trace, const std::string& path);  // docs/formats/sqlite.md
// docs/formats/nsys-sqlite.md
Status write_nsys_sqlite(const Trace& trace, const std::string& path);
Status write_perfetto(const Trace& trace, const std::string& path);  // docs/formats/perfetto.md

}  // namespace llmprof::exporting
