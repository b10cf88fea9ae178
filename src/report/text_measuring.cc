#include "report/text_measuring.h"

#include <fmt/format.h>

#include <algorithm>

namespace llmprof::bench {

std::string device_line(const MeasuredDevice& device) {
  const bool cpu = device.kind == Processor::kCpu;
  std::string out = device.name;
  if (!cpu) out += fmt::format(" ({}, driver {})", device.uuid.value_or(""), device.driver.value_or(""));
  out += fmt::format(", {} {}{}", device.units, cpu ? "thread" : "SM", device.units == 1 ? "" : "s");
  for (size_t i = 0; i < device.libraries.size(); ++i)
    out += fmt::format("{}{} {}", i == 0 ? "; " : ", ", device.libraries[i].name, device.libraries[i].version);
  return out;
}

std::string fixed_text(const OptNumber& value, int decimals) { return value ? format_fixed(*value, decimals) : ""; }
std::string percent_text(const OptNumber& fraction) { return fraction ? format_percent(*fraction) : ""; }
std::string rate_text(const OptNumber& value) { return value ? format_rate(*value) : ""; }
std::string us_text(const OptNumber& us) { return us ? format_ms(*us / 1e3) : ""; }

std::string filled_columns(const std::vector<TextTable::Column>& columns,
                           const std::vector<std::vector<std::string>>& rows, const TextStyle& style) {
  std::vector<TextTable::Column> shown;
  std::vector<size_t> index;
  for (size_t c = 0; c < columns.size(); ++c) {
    if (std::all_of(rows.begin(), rows.end(), [c](const auto& row) { return row[c].empty(); })) continue;
    shown.push_back(columns[c]);
    index.push_back(c);
  }
  TextTable table(shown);
  for (const std::vector<std::string>& row : rows) {
    std::vector<std::string> cells;
    for (const size_t c : index) cells.push_back(row[c]);
    table.add_row(std::move(cells));
  }
  return table.render("  ", style);
}

}  // namespace llmprof::bench
