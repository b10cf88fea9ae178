#include "base/text_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace llmprof {
namespace {

using Column = TextTable::Column;
using Cells = std::vector<std::vector<std::string>>;  // rows of what stands in them

constexpr size_t kGap = 2;  // blanks between columns
// Cut shorter than this a name is taken for another too easily; the first column is what a row is about.
constexpr size_t kReadableName = 28, kReadableText = 20;
constexpr size_t kLeastText = 8;

// What a table looks like in the width that there is.
struct Layout {
  std::vector<size_t> widths;    // of every column
  std::vector<bool> shown;       // columns
  std::vector<size_t> left_out;  // columns that would not fit, in their own order
};

// Decides on widths. Texts give way down to a readable width, then columns go, then texts give way further.
class Fitter {
 public:
  Fitter(const std::vector<Column>& columns, const std::vector<size_t>& natural, const std::vector<bool>& blank,
         size_t width)
      : columns_(columns), natural_(natural), blank_(blank), width_(width), shown_(columns.size(), true) {}

  Layout fit() {
    while (total(kReadableText) > width_ && leave_out(true)) continue;
    size_t least = kReadableText;
    if (total(least) > width_) least = kLeastText;
    while (total(least) > width_ && leave_out(false)) continue;
    Layout layout{std::vector<size_t>(columns_.size()), shown_, {}};
    for (size_t c = 0; c < columns_.size(); ++c) {
      layout.widths[c] = floor_of(c, least);
      if (!shown_[c]) layout.left_out.push_back(c);
    }
    share_out(layout, width_ - std::min(width_, total(least)));
    return layout;
  }

 private:
  // Numbers are never cut; names and prose are.
  size_t floor_of(size_t c, size_t least) const {
    const bool text = columns_[c].prose || columns_[c].align == TextTable::Align::kLeft;
    if (!text) return natural_[c];
    return std::min(natural_[c], c == 0 && least == kReadableText ? kReadableName : least);
  }
  size_t total(size_t least) const {
    size_t sum = 0, columns = 0;
    for (size_t c = 0; c < columns_.size(); ++c) {
      if (!shown_[c]) continue;
      sum += floor_of(c, least);
      ++columns;
    }
    return sum + (columns == 0 ? 0 : kGap * (columns - 1));
  }
  // Takes the column away that is needed least: one without a value first. If none may go by the declaration, the last
  // one; the first always stays.
  bool leave_out(bool by_declaration) {
    size_t worst = 0;
    int most = by_declaration ? 0 : -1;
    for (size_t c = 1; c < columns_.size(); ++c) {
      if (!shown_[c]) continue;
      const int drop = columns_[c].drop == 0 ? 0 : columns_[c].drop + (blank_[c] ? 256 : 0);
      if (drop < most || (by_declaration && drop == 0)) continue;
      most = drop;
      worst = c;
    }
    if (worst == 0) return false;
    shown_[worst] = false;
    return true;
  }
  // Room that is left goes to the texts, the narrowest first, until each has what it wants.
  void share_out(Layout& layout, size_t room) const {
    for (; room > 0; --room) {
      size_t best = columns_.size();
      for (size_t c = 0; c < columns_.size(); ++c) {
        if (!shown_[c] || layout.widths[c] >= natural_[c]) continue;
        if (best == columns_.size() || layout.widths[c] < layout.widths[best]) best = c;
      }
      if (best == columns_.size()) return;
      ++layout.widths[best];
    }
  }

  const std::vector<Column>& columns_;
  const std::vector<size_t>& natural_;
  const std::vector<bool>& blank_;
  size_t width_;
  std::vector<bool> shown_;
};

// Words into lines of at most `width` columns; a longer word is cut in pieces.
std::vector<std::string> broken(std::string_view text, size_t width) {
  std::vector<std::string> out;
  for (std::string_view line = text; !line.empty();) {
    if (display_width(line) <= width) {
      out.emplace_back(line);
      break;
    }
    const size_t end = break_at(line, width);
    out.emplace_back(line.substr(0, end));
    line.remove_prefix(end);
    while (line.starts_with(' ')) line.remove_prefix(1);
  }
  if (out.empty()) out.emplace_back();
  return out;
}

std::string padded(const std::string& cell, size_t width, TextTable::Align align) {
  const std::string pad(width - std::min(width, display_width(cell)), ' ');
  return align == TextTable::Align::kRight ? pad + cell : cell + pad;
}

// One row, in as many lines as its longest prose takes. Without `color` codes.
std::string row_text(const std::vector<Column>& columns, const Layout& layout, const std::vector<std::string>& row,
                     std::string_view indent, Charset charset) {
  std::vector<std::vector<std::string>> lines(columns.size());
  size_t height = 1;
  for (size_t c = 0; c < columns.size(); ++c) {
    if (!layout.shown[c]) continue;
    lines[c] = columns[c].prose ? broken(row[c], layout.widths[c])
                                : std::vector<std::string>{ellipsize(row[c], layout.widths[c], charset)};
    height = std::max(height, lines[c].size());
  }
  std::string text;
  for (size_t l = 0; l < height; ++l) {
    std::string body;
    bool first = true;
    for (size_t c = 0; c < columns.size(); ++c) {
      if (!layout.shown[c]) continue;
      if (!first) body.append(kGap, ' ');
      first = false;
      body += padded(l < lines[c].size() ? lines[c][l] : std::string(), layout.widths[c], columns[c].align);
    }
    while (!body.empty() && body.back() == ' ') body.pop_back();
    if (l > 0) text += '\n';
    text.append(indent) += body;
  }
  return text;
}

}  // namespace

std::string TextTable::render(std::string_view indent, const TextStyle& style) const {
  std::vector<size_t> natural;
  std::vector<std::string> headers;
  for (const Column& column : columns_) {
    headers.push_back(printable(column.header, style.charset));
    natural.push_back(display_width(headers.back()));
  }
  std::vector<bool> blank(columns_.size(), true);
  Cells cells;
  for (const std::vector<std::string>& row : rows_) {
    std::vector<std::string>& out = cells.emplace_back(columns_.size());
    for (size_t c = 0; c < columns_.size() && c < row.size(); ++c) {
      out[c] = printable(row[c], style.charset);
      if (columns_[c].max_width != 0) out[c] = ellipsize(out[c], columns_[c].max_width, style.charset);
      natural[c] = std::max(natural[c], display_width(out[c]));
      if (!out[c].empty() && out[c] != "-") blank[c] = false;
    }
  }
  Layout layout{natural, std::vector<bool>(columns_.size(), true), {}};
  if (style.fit) {
    const size_t width = std::max(style.width, kLeastWidth);
    layout = Fitter(columns_, natural, blank, width - std::min(width, indent.size())).fit();
  }
  std::string text;
  if (style.color) text += "\033[2m";
  text += row_text(columns_, layout, headers, indent, style.charset);
  if (style.color) text += "\033[0m";
  text += '\n';
  size_t total = 0, shown = 0;
  for (size_t c = 0; c < columns_.size(); ++c) {
    if (!layout.shown[c]) continue;
    total += layout.widths[c];
    ++shown;
  }
  if (shown > 0) total += kGap * (shown - 1);
  size_t next_rule = 0;
  for (size_t r = 0; r < cells.size(); ++r) {
    for (; next_rule < rules_.size() && rules_[next_rule] <= r; ++next_rule) {
      text += indent;
      for (size_t i = 0; i < total; ++i) text += style.charset == Charset::kUtf8 ? "─" : "-";
      text += '\n';
    }
    text += row_text(columns_, layout, cells[r], indent, style.charset) + '\n';
  }
  if (layout.left_out.empty()) return text;
  std::string names;
  for (const size_t c : layout.left_out) names += (names.empty() ? "" : ", ") + headers[c];
  const std::string note = fmt::format("not shown: {} ({})", names, style.more);
  const std::string lines = wrap_text(note, std::max(style.width, kLeastWidth), indent, std::string(indent) + "  ");
  return text + (style.color ? "\033[2m" + lines + "\033[0m" : lines);
}

namespace {
// Four significant digits without an exponent.
std::string significant(double value) {
  const double size = std::fabs(value);
  const int decimals = size >= 1000 ? 0 : size >= 100 ? 1 : size >= 10 ? 2 : 3;
  return fmt::format("{:.{}f}", value, decimals);
}
}  // namespace

std::string format_ms(double ms) {
  if (!std::isfinite(ms)) return "-";
  const double size = std::fabs(ms);
  if (size == 0) return "0";
  if (size >= 10000) return significant(ms / 1e3) + " s";
  if (size >= 1) return significant(ms) + " ms";
  if (size >= 1e-3) return significant(ms * 1e3) + " us";
  return significant(ms * 1e6) + " ns";
}

std::string format_ns(int64_t ns) { return format_ms(static_cast<double>(ns) / 1e6); }

std::string format_percent(double fraction) {
  if (!std::isfinite(fraction)) return "-";
  const double percent = fraction * 100;
  // What is less than all must not read like all.
  constexpr double kRounding = 1e-9;
  if (percent >= 99.95 && fraction < 1 - kRounding) return ">99.9 %";
  return fmt::format("{:.{}f} %", percent, std::fabs(percent) < 0.095 && percent != 0 ? 2 : 1);
}

std::string format_count(double count) {
  if (!std::isfinite(count)) return "-";
  std::string digits = fmt::format("{:.0f}", count);
  const size_t start = digits[0] == '-' ? 1 : 0;
  for (size_t i = digits.size(); i > start + 3;) {
    i -= 3;
    digits.insert(i, ",");
  }
  return digits;
}

std::string format_si(double value, std::string_view unit) {
  if (!std::isfinite(value)) return "-";
  static constexpr std::array<std::string_view, 9> kPrefixes = {"", "k", "M", "G", "T", "P", "E", "Z", "Y"};
  double scaled = value;
  size_t prefix = 0;
  for (; std::fabs(scaled) >= 1000 && prefix + 1 < kPrefixes.size(); ++prefix) scaled /= 1000;
  if (prefix == 0 && scaled == std::floor(scaled)) return fmt::format("{:.0f} {}", scaled, unit);
  const double size = std::fabs(scaled);
  return fmt::format("{:.{}f} {}{}", scaled, size >= 100 ? 0 : size >= 10 ? 1 : 2, kPrefixes[prefix], unit);
}

std::string format_bytes(double bytes) { return format_si(bytes, "B"); }

std::string format_rate(double value) {
  int decimals = 0;
  for (double least = 100; least > 0.001 && std::fabs(value) < least; least /= 10) ++decimals;
  return format_fixed(value, value == 0 ? 0 : decimals);
}

std::string format_fixed(double value, int decimals) {
  return std::isfinite(value) ? fmt::format("{:.{}f}", value, decimals) : "-";
}

}  // namespace llmprof
