// Ranks of one job, and the collectives that they ran together.
#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "base/text_table.h"
#include "report/text_parts.h"

namespace llmprof {
namespace {

std::string last_part(const std::string& path) { return path.substr(path.rfind('/') + 1); }

std::string us_text(const OptDouble& us) { return us ? format_ms(*us / 1e3) : "-"; }

// "12 us (-3 us to 40 us)": an offset of clocks and its bounds.
std::string clock_text(const RankRecord& row) {
  if (!row.offset_us) return "unknown";
  if (!row.offset_low_us && !row.offset_high_us) return us_text(row.offset_us) + ", contradicted";
  const std::string bounds = !row.offset_low_us    ? "at most " + us_text(row.offset_high_us)
                             : !row.offset_high_us ? "at least " + us_text(row.offset_low_us)
                                                   : us_text(row.offset_low_us) + " to " + us_text(row.offset_high_us);
  return fmt::format("{} ({}){}", us_text(row.offset_us), bounds, row.shift_us != 0 ? ", applied" : "");
}

size_t rows_shown(const RenderOptions& options, size_t of_page) {
  return options.one_page ? std::min(of_page, options.top) : options.top;
}

std::string more_rows(size_t all, size_t most, const Ink& ink) {
  return all > most ? ink.dim(fmt::format("  {} more: --full, --format csv\n", all - most)) : std::string();
}

std::string rank_rows(const Report& report, const RenderOptions& options, const Ink& ink) {
  TextTable table({{"rank", TextTable::Align::kRight},
                   {"gpu", TextTable::Align::kRight},
                   {"file", TextTable::Align::kLeft, 28, 4},
                   {"host", TextTable::Align::kLeft, 20, 3},
                   {"busy", TextTable::Align::kRight},
                   {"idle", TextTable::Align::kRight, 0, 1},
                   {"in collectives", TextTable::Align::kRight},
                   {"waiting", TextTable::Align::kRight},
                   {"last", TextTable::Align::kRight},
                   {"late", TextTable::Align::kRight, 0, 2},
                   {"clock", TextTable::Align::kLeft, 0, 5}});
  const size_t most = rows_shown(options, 8);
  size_t shown = 0;
  for (const RankRecord& row : report.ranks) {
    if (++shown > most) break;
    table.add_row({std::to_string(row.rank), std::to_string(row.device), printable(last_part(row.file)),
                   printable(row.host.value_or("-")), format_ms(row.gpu_busy_ms.ms()), format_ms(row.gpu_idle_ms.ms()),
                   format_ms(row.collectives_ms.ms()), format_ms(row.waiting_ms.ms()),
                   fmt::format("{} of {}", row.last, row.joined), format_ms(row.late_ms.ms()), clock_text(row)});
  }
  return title(ink, "Ranks",
               "waiting: until the last rank had entered; last: how often it was that one, late: by how much") +
         table.render("  ", options) + more_rows(report.ranks.size(), most, ink) + "\n";
}

std::string collective_rows(const Report& report, const RenderOptions& options, const Ink& ink) {
  if (report.joined_collectives.empty()) return {};
  TextTable table({{"group", TextTable::Align::kLeft, 20, 3},
                   {"collective", TextTable::Align::kLeft, 36},
                   {"type", TextTable::Align::kLeft, 0, 5},
                   {"size", TextTable::Align::kRight},
                   {"ranks", TextTable::Align::kRight, 0, 4},
                   {"count", TextTable::Align::kRight},
                   {"wait", TextTable::Align::kRight},
                   {"wire", TextTable::Align::kRight},
                   {"bus GB/s", TextTable::Align::kRight},
                   {"last", TextTable::Align::kLeft, 0, 1},
                   {"late", TextTable::Align::kRight, 0, 2},
                   {"unmatched", TextTable::Align::kRight, 0, 6}});
  const size_t most = rows_shown(options, 6);
  size_t shown = 0;
  for (const JoinedCollectiveRecord& row : report.joined_collectives) {
    if (++shown > most) break;
    const std::string ranks = row.ranks && *row.ranks != row.ranks_joined
                                  ? fmt::format("{} of {}", row.ranks_joined, *row.ranks)
                                  : std::to_string(row.ranks_joined);
    table.add_row({printable(row.members.value_or(row.group.value_or("-"))), printable(row.name),
                   printable(row.dtype.value_or("-")), row.bytes ? format_bytes(*row.bytes) : "-", ranks,
                   format_count(static_cast<double>(row.count)), us_text(row.wait_us), us_text(row.wire_us),
                   row.bus_gbs ? format_rate(*row.bus_gbs) : "-",
                   row.last_rank ? fmt::format("rank {}, {} x", *row.last_rank, row.last_count) : "-",
                   us_text(row.late_us), format_count(static_cast<double>(row.unmatched))});
  }
  return title(ink, "Collectives of all ranks",
               "medians; wait: from the first rank's start to the last one's, wire: from then to the end") +
         table.render("  ", options) + more_rows(report.joined_collectives.size(), most, ink) + "\n";
}

}  // namespace

std::string text_ranks(const Report& report, const RenderOptions& options, const Ink& ink) {
  if (report.ranks.empty()) return {};
  return rank_rows(report, options, ink) + collective_rows(report, options, ink);
}

}  // namespace llmprof
