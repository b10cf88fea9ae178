#include "export/destination.h"
#include "export/export.h"
#include "export/formats.h"

namespace llmprof {
namespace {

constexpr ExportFormat kExportFormats[] = {
    {"perfetto", "a timeline for ui.perfetto.dev: steps, threads, streams, idle time, counters, launches as flows",
     false, false, exporting::write_perfetto},
    {"sqlite", "a database: every table of the trace, with views", false, true, exporting::write_sqlite},
    {"nsys-sqlite", "the tables of an export of Nsight Systems, for tools that read these", false, true,
     exporting::write_nsys_sqlite},
    {"csv", "a folder with a file for every table of the trace", true, false, exporting::write_csv},
    {"json", "one document with every table of the trace", false, false, exporting::write_json},
};

}  // namespace

std::span<const ExportFormat> export_formats() { return kExportFormats; }

const ExportFormat* find_export_format(std::string_view name) {
  for (const ExportFormat& format : kExportFormats)
    if (format.name == name) return &format;
  return nullptr;
}

Status check_export_path(const ExportFormat& format, const std::string& path) {
  // Given up at once, it leaves nothing behind.
  if (format.folder) {
    LLMPROF_CHECK(exporting::Destination::for_folder(path));
    return {};
  }
  LLMPROF_ASSIGN(const exporting::Destination destination, exporting::Destination::for_file(path, format.seeks));
  // A device may block or ring bells: it is opened once.
  if (destination.part() == path) return {};
  return exporting::TextFile(destination.part(), path).close();
}

}  // namespace llmprof
