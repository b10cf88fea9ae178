// Files joined to the recording.
#include <fmt/format.h>

#include <string>

#include "base/text_table.h"
#include "report/text_parts.h"

namespace llmprof {
namespace {

std::string records_text(const OptInt& count) { return count ? format_count(static_cast<double>(*count)) : "-"; }

// "-7200 s, within 500 ms".
std::string offset_text(const JoinedFileRecord& row) {
  if (!row.offset_s) return "-";
  std::string out = fmt::format("{:.9g} s", *row.offset_s);
  if (row.offset_bound_s) out += ", within " + format_ms(*row.offset_bound_s * 1e3);
  return out;
}

}  // namespace

std::string text_joined_files(const Report& report, const RenderOptions& options, const Ink& ink) {
  if (report.joined_files.empty()) return {};
  TextTable table({{"file", kLeft, 28},
                   {"format", kLeft, 0, 3},
                   {"joined by", kLeft, 30, 2},
                   {"clock", kLeft, 0, 1},
                   {"records"},
                   {"matched"},
                   {"not"}});
  std::string reasons;
  if (report.source.recording)
    reasons += wrap_text(file_name(*report.source.recording) + ": the recording, on whose clock all times are",
                         options.width, "  ", "      ");
  for (const JoinedFileRecord& row : report.joined_files) {
    const std::string file = file_name(row.file);
    table.add_row({file, printable(row.format), printable(row.joined_by.value_or("-")), offset_text(row),
                   records_text(row.records), records_text(row.matched), records_text(row.not_matched)});
    if (row.utilisation_agree_frac)
      reasons += wrap_text(fmt::format("{}: {} of {} readings of GPU utilisation agree with the recording", file,
                                       percent_or_dash(row.utilisation_agree_frac), *row.utilisation_readings),
                           options.width, "  ", "      ");
    if (row.why) reasons += wrap_text(file + ": " + printable(*row.why), options.width, "  ", "      ");
  }
  return title(ink, "Joined files", "clock: what was added to their times, and by how much it may be wrong") +
         table.render("  ", options) + reasons + "\n";
}

}  // namespace llmprof
