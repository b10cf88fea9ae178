#include "import/ncu_lines.h"

#include <algorithm>

#include "import/bounded_lines.h"

namespace llmprof::ncu {
namespace {

constexpr size_t kLinesOfRowMax = 1000;  // texts of NVTX ranges and of rules hold few

bool quote_open(std::string_view line) { return std::count(line.begin(), line.end(), '"') % 2 != 0; }

std::string_view without_return(std::string_view line) {
  return line.ends_with('\r') ? line.substr(0, line.size() - 1) : line;
}

std::string_view without_mark(std::string_view line) {  // of UTF-8, that editors put before a file
  return line.starts_with("\xEF\xBB\xBF") ? line.substr(3) : line;
}

// Joins the physical lines of a row.
class RowJoiner {
 public:
  explicit RowJoiner(const std::function<void(const Line&)>& use) : use_(use) {}

  void line(std::string_view text, bool too_long, bool cut) {
    ++number_;
    // The next row, or ncu itself, begins before the quote was closed: the row before was cut.
    if (lines_ > 0 && (begins_as_row(text) || is_names_row(text) || text.starts_with("=="))) give(true);
    if (lines_ == 0) {
      begun_ = number_;
      row_.assign(text);
    } else {
      row_ += '\n';
      row_ += text;
    }
    ++lines_;
    too_long_ = too_long || row_.size() > kRowBytesMax;
    const bool row = begins_as_row(row_) || is_names_row(row_);
    if (!cut && row && !too_long_ && lines_ < kLinesOfRowMax && (lines_ > 1 ? open_ : false) != quote_open(text)) {
      open_ = true;
      return;
    }
    give(cut);
  }
  void finish() {
    if (lines_ > 0) give(true);
  }

 private:
  void give(bool cut) {
    use_({row_, begun_, cut, too_long_});
    lines_ = 0;
    open_ = too_long_ = false;
    row_.clear();
  }

  const std::function<void(const Line&)>& use_;
  std::string row_;
  size_t lines_ = 0;
  uint64_t number_ = 0, begun_ = 0;
  bool open_ = false, too_long_ = false;
};

}  // namespace

bool begins_as_row(std::string_view line) {
  const bool quoted = line.starts_with('"');
  size_t at = quoted ? 1 : 0;
  const size_t digits = at;
  while (at < line.size() && line[at] >= '0' && line[at] <= '9') ++at;
  if (!quoted) return at > digits && at < line.size() && line[at] == ',';
  return line.substr(at).starts_with("\",");
}

bool is_names_row(std::string_view line) {
  line = without_mark(line);
  return line.starts_with("\"ID\",\"Process ID\",") || line.starts_with("ID,Process ID,");
}

bool CsvRow::split(std::string_view line) {
  text_.clear();
  ends_.clear();
  line = without_mark(line);
  bool quoted = false;
  for (size_t i = 0; i < line.size() && ends_.size() < kCellsMax; ++i) {
    const char c = line[i];
    if (c == '"') {
      if (quoted && i + 1 < line.size() && line[i + 1] == '"') {
        text_ += '"';
        ++i;
      } else {
        quoted = !quoted;
      }
    } else if (c == ',' && !quoted) {
      ends_.push_back(text_.size());
    } else {
      text_ += c;
    }
  }
  if (ends_.size() < kCellsMax) ends_.push_back(text_.size());
  return !quoted;
}

void read_lines(InputFile& input, const std::function<void(const Line&)>& use) {
  RowJoiner joiner(use);
  read_bounded_lines(input, kRowBytesMax,
                     [&](const BoundedLine& line) { joiner.line(without_return(line.text), line.too_long, line.cut); });
  joiner.finish();
}

}  // namespace llmprof::ncu
