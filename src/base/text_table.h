// Tables for a terminal: columns sized to their content, numbers right-aligned. Where the page has a width, a table
// fits in it: names are cut, prose is broken into lines, and then the columns that are needed least go, as the table's
// declaration says; a line below it names them. Also the number formats that every text report shares.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/page.h"
#include "base/printable.h"

namespace llmprof {

class TextTable {
 public:
  enum class Align : uint8_t { kLeft, kRight };
  // Which columns go first where there is no room for all: the highest number; of equals the last. 0 never goes.
  using Drop = uint8_t;
  struct Column {
    std::string header;
    Align align = Align::kRight;
    size_t max_width = 0;  // 0: no limit
    Drop drop = 0;
    bool prose = false;  // sentences: broken into lines where there is no room, never cut
  };
  explicit TextTable(std::vector<Column> columns) : columns_(std::move(columns)) {}
  // Missing cells are empty; surplus cells are dropped.
  void add_row(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  // A rule before the next row (for totals).
  void add_rule() { rules_.push_back(rows_.size()); }
  bool empty() const { return rows_.empty(); }
  std::string render(std::string_view indent = "  ", const TextStyle& style = {}) const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
  std::vector<size_t> rules_;
};

std::string format_ms(double ms);             // "25.91 ms", "740 us", "3.2 s": 4 significant digits, unit by size
std::string format_ns(int64_t ns);            // the same from nanoseconds
std::string format_percent(double fraction);  // 0.423 -> "42.3 %"
std::string format_count(double count);       // 1234567 -> "1,234,567"
std::string format_si(double value, std::string_view unit);  // 7.2e12, "FLOP" -> "7.22 TFLOP"
std::string format_bytes(double bytes);                      // decimal units, 1e9 bytes = 1 GB
std::string format_fixed(double value, int decimals);
std::string format_rate(double value);  // three figures: 1979, 17.5, 0.178, 0.0021

}  // namespace llmprof
