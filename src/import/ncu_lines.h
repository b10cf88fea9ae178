// The lines of what `ncu --csv` printed, and which of them are rows of its tables. Output of the program and of ncu
// itself may stand before and between them.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/input_file.h"

namespace llmprof::ncu {

constexpr size_t kRowBytesMax = 4 * 1024 * 1024;  // the raw page of --set full has 50 KB a row
constexpr size_t kCellsMax = 1 << 16;

// A line that begins as a row of a table does: with a number, or nothing, in quotes, and a comma.
bool begins_as_row(std::string_view line);

// A line of names: "ID","Process ID", ... Quotes may be missing.
bool is_names_row(std::string_view line);

// The cells of one row of CSV (RFC 4180); those beyond kCellsMax are left out.
class CsvRow {
 public:
  // False if a quote is open at the end.
  bool split(std::string_view line);
  size_t size() const { return ends_.size(); }
  std::string_view operator[](size_t i) const {
    const size_t begin = i == 0 ? 0 : ends_[i - 1];
    return std::string_view(text_).substr(begin, ends_[i] - begin);
  }

 private:
  std::string text_;  // all cells, one behind the other
  std::vector<size_t> ends_;
};

// What read_lines() found, in the order of the file.
struct Line {
  std::string_view text;  // without its end; a row whose quoted cells hold line feeds is one line
  uint64_t number = 0;    // of its first line, from 1
  bool cut = false;       // the file ends in it
  bool too_long = false;  // more than kRowBytesMax: only its beginning
};
void read_lines(InputFile& input, const std::function<void(const Line&)>& use);

}  // namespace llmprof::ncu
