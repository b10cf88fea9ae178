// Importer for SQLite exports of Nsight Systems (`nsys export --type sqlite`), and for its reports by way of such an
// export. docs/formats/nsys.md describes the format and what is kept.
#pragma once

#include <string>

#include "import/importer.h"

namespace llmprof::nsys {

// Any SQLite file; import() says what it found in one that is no such export.
int sniff(std::string_view head);
Status import(InputFile& input, Trace& trace);

// The same with parts of so many rows. The result must not depend on it.
constexpr int64_t kPartRows = 1 << 16;
Status import_in_parts(InputFile& input, Trace& trace, int64_t part_rows);

// A report as `nsys profile` writes it, by its name: its format is not public, nsys itself can export it.
bool is_report(const std::string& path);
// Runs `nsys export` into a temporary folder and imports what it wrote. Error: there is no nsys, or it failed.
Status import_report(const std::string& path, Trace& trace);

}  // namespace llmprof::nsys
