// PyTorch's caching allocator: what it holds and what of it is used, and which Python code allocated that.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base/text_table.h"
#include "report/text_parts.h"

namespace llmprof {
namespace {

std::string bytes_or_dash(const OptDouble& bytes) { return bytes ? format_bytes(*bytes) : std::string("-"); }
std::string count_or_dash(const OptInt& count) {
  return count ? format_count(static_cast<double>(*count)) : std::string("-");
}

// The end of a place that is too long, which has the file's name and the function.
std::string place_label(const std::string& place, size_t longest) {
  const std::string name = printable(place);
  size_t from = name.size() > longest ? name.size() - longest : 0;
  while (from > 0 && from < name.size() && (static_cast<unsigned char>(name[from]) & 0xC0) == 0x80) ++from;
  return from == 0 ? name : "…" + name.substr(from);
}

std::string device_label(const OptInt& device) { return device ? std::to_string(*device) : std::string("-"); }

std::string states_table(const Report& report, const RenderOptions& options) {
  TextTable table({{"GPU", kLeft},
                   {"reserved"},
                   {"active", kRight, 0, 4},
                   {"allocated"},
                   {"requested", kRight, 0, 2},
                   {"unused"},
                   {"rounding", kRight, 0, 3},
                   {"largest free", kRight, 0, 1},
                   {"split", kRight, 0, 5},
                   {"segments", kRight, 0, 5},
                   {"blocks", kRight, 0, 5},
                   {"OOM"},
                   {"retries", kRight, 0, 6}});
  for (const AllocatorRecord& row : report.allocators)
    table.add_row({device_label(row.device), bytes_or_dash(row.reserved_bytes), bytes_or_dash(row.active_bytes),
                   bytes_or_dash(row.allocated_bytes), bytes_or_dash(row.requested_bytes),
                   bytes_or_dash(row.fragmentation_bytes), bytes_or_dash(row.rounding_bytes),
                   bytes_or_dash(row.largest_free_bytes), bytes_or_dash(row.inactive_split_bytes),
                   count_or_dash(row.segments), count_or_dash(row.live_blocks), count_or_dash(row.out_of_memory),
                   count_or_dash(row.retries)});
  return table.render("  ", options);
}

// "GPU 0: history of 4,274 events over 761 ms; most in use 1.2 GB at 300 ms; 1.0 GB in use before its first event".
std::string history_line(const AllocatorRecord& row, const RenderOptions& options) {
  std::string out = "GPU " + device_label(row.device) + ": ";
  if (row.events) {
    out += fmt::format("history of {} allocations and frees over {}", format_count(static_cast<double>(*row.events)),
                       format_ms(row.history_ms.value_or(0)));
    if (row.history_peak_bytes)
      out += fmt::format("; most in use {} at {}", format_bytes(*row.history_peak_bytes),
                         format_ms(row.history_peak_ms.value_or(0)));
    if (row.history_peak_ranges) out += ", in " + printable(*row.history_peak_ranges);
    if (row.before_history_bytes && *row.before_history_bytes > 0)
      out += fmt::format("; {} in use before its first event", format_bytes(*row.before_history_bytes));
    if (row.unmatched_frees.value_or(0) > 0)
      out += fmt::format(", {} older blocks freed in it", format_count(static_cast<double>(*row.unmatched_frees)));
  } else {
    out += "no history";
  }
  if (row.peak_allocated_bytes)
    out += fmt::format("; of the process: most allocated {}, reserved {}", format_bytes(*row.peak_allocated_bytes),
                       bytes_or_dash(row.peak_reserved_bytes));
  return wrap_text(out, options.width, "  ", "    ");
}

std::string places_table(const Report& report, const char* moment, size_t most, const RenderOptions& options,
                         const Ink& ink) {
  const size_t longest = options.width > 100 ? 70 : 44;
  TextTable table({{"GPU", kLeft, 0, 2}, {"code", kLeft, longest + 2}, {"blocks", kRight, 0, 1}, {"bytes"}, {"share"}});
  size_t shown = 0, all = 0;
  for (const MemoryPlaceRecord& row : report.memory_places) {
    if (row.moment != moment) continue;
    if (++all > most) continue;
    ++shown;
    table.add_row({std::to_string(row.device), place_label(row.place, longest),
                   format_count(static_cast<double>(row.blocks)), format_bytes(row.bytes),
                   row.frac ? format_percent(*row.frac) : std::string("-")});
  }
  if (shown == 0) return {};
  return fmt::format("  in use at the {}, by the Python code that allocated it:\n", moment) +
         table.render("  ", options) + (all > shown ? ink.dim(fmt::format("  {} more: --full\n", all - shown)) : "");
}

std::string largest_table(const Report& report, size_t most, const RenderOptions& options) {
  const size_t longest = options.width > 100 ? 70 : 44;
  TextTable table(
      {{"GPU", kLeft, 0, 2}, {"at the", kLeft}, {"bytes"}, {"allocated", kRight, 0, 1}, {"code", kLeft, longest + 2}});
  std::string moment;
  size_t shown = 0;
  for (const LargestBlockRecord& row : report.largest_blocks) {
    if (row.moment != moment) shown = 0;
    moment = row.moment;
    if (++shown > most) continue;
    table.add_row({std::to_string(row.device), row.moment, format_bytes(row.bytes),
                   row.allocated_ms ? format_ms(*row.allocated_ms) : std::string("-"),
                   place_label(row.place, longest)});
  }
  return table.empty() ? std::string() : "  largest blocks:\n" + table.render("  ", options);
}

std::string memory_ranges_table(const Report& report, size_t most, const RenderOptions& options, const Ink& ink) {
  TextTable table({{"GPU", kLeft, 0, 3},
                   {"range of the program", kLeft, options.width > 100 ? size_t{56} : size_t{34}},
                   {"times", kRight, 0, 1},
                   {"total", kRight, 0, 1},
                   {"most in use"},
                   {"change", kRight, 0, 2}});
  const auto signed_bytes = [](double bytes) { return (bytes < 0 ? "-" : "+") + format_bytes(std::abs(bytes)); };
  size_t shown = 0;
  for (const MemoryRangeRecord& row : report.memory_ranges) {
    if (++shown > most) break;
    table.add_row({std::to_string(row.device), printable(row.name), format_count(static_cast<double>(row.ranges)),
                   row.total_ms ? format_ms(*row.total_ms) : std::string("-"), bytes_or_dash(row.peak_bytes),
                   row.change_bytes ? signed_bytes(*row.change_bytes) : std::string("-")});
  }
  if (table.empty()) return {};
  const size_t all = report.memory_ranges.size();
  return "  within ranges of the program:\n" + table.render("  ", options) +
         (all > most ? ink.dim(fmt::format("  {} more: --full\n", all - most)) : "");
}

std::string failures_table(const Report& report, size_t most, const RenderOptions& options) {
  TextTable table({{"GPU", kLeft, 0, 2},
                   {"at"},
                   {"asked"},
                   {"free"},
                   {"in use", kRight, 0, 1},
                   {"reserved", kRight, 0, 1},
                   {"code", kLeft, 60}});
  size_t shown = 0;
  for (const MemoryFailureRecord& row : report.out_of_memory) {
    if (++shown > most) break;
    table.add_row({std::to_string(row.device), format_ms(row.time_ms), bytes_or_dash(row.requested_bytes),
                   bytes_or_dash(row.free_bytes), bytes_or_dash(row.in_use_bytes), bytes_or_dash(row.reserved_bytes),
                   place_label(row.place, 58)});
  }
  return table.empty() ? std::string() : "  out of memory:\n" + table.render("  ", options);
}

}  // namespace

std::string text_allocators(const Report& report, const RenderOptions& options, const Ink& ink) {
  constexpr size_t kRowsOfPage = 6, kRowsOfFull = 25;
  if (report.allocators.empty()) return {};
  const size_t most = std::min(options.one_page ? kRowsOfPage : kRowsOfFull, options.top);
  std::string out = title(ink, "PyTorch's memory", "unused: reserved - allocated; rounding: allocated - requested") +
                    states_table(report, options);
  for (const AllocatorRecord& row : report.allocators)
    if (row.device) out += history_line(row, options);
  out += failures_table(report, most, options);
  const bool peak = std::any_of(report.memory_places.begin(), report.memory_places.end(),
                                [](const MemoryPlaceRecord& row) { return row.moment == "peak"; });
  if (peak) out += places_table(report, "peak", most, options, ink);
  if (!peak || !options.one_page) out += places_table(report, "snapshot", most, options, ink);
  out += memory_ranges_table(report, most, options, ink);
  if (!options.one_page) out += largest_table(report, most, options);
  return out + "\n";
}

}  // namespace llmprof
