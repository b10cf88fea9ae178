#include "base/text_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace llmprof {

size_t display_width(std::string_view text) {
  size_t width = 0;
  for (const char c : text) width += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  return width;
}

std::string ellipsize(std::string_view text, size_t width) {
  if (display_width(text) <= width) return std::string(text);
  if (width == 0) return {};
  size_t seen = 0, end = 0;
  for (; end < text.size(); ++end) {
    if ((static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) continue;
    if (seen == width - 1) break;
    ++seen;
  }
  return std::string(text.substr(0, end)) + "…";
}

std::string printable(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    const unsigned char byte = static_cast<unsigned char>(c);
    out += byte < 0x20 || byte == 0x7F ? '?' : c;
  }
  return out;
}

std::string TextTable::render(std::string_view indent, bool color) const {
  std::vector<size_t> widths;
  for (const Column& column : columns_) widths.push_back(display_width(column.header));
  std::vector<std::vector<std::string>> cells;
  for (const std::vector<std::string>& row : rows_) {
    std::vector<std::string>& out = cells.emplace_back(columns_.size());
    for (size_t c = 0; c < columns_.size() && c < row.size(); ++c) {
      out[c] = printable(row[c]);
      if (columns_[c].max_width != 0) out[c] = ellipsize(out[c], columns_[c].max_width);
      widths[c] = std::max(widths[c], display_width(out[c]));
    }
  }
  std::string text;
  const auto line = [&](const auto& cell_of) {
    text += indent;
    std::string body;
    for (size_t c = 0; c < columns_.size(); ++c) {
      const std::string& cell = cell_of(c);
      const std::string pad(widths[c] - display_width(cell), ' ');
      body += columns_[c].align == Align::kRight ? pad + cell : cell + pad;
      if (c + 1 < columns_.size()) body += "  ";
    }
    while (!body.empty() && body.back() == ' ') body.pop_back();
    text += body;
  };
  if (color) text += "\033[2m";
  line([&](size_t c) -> const std::string& { return columns_[c].header; });
  if (color) text += "\033[0m";
  text += '\n';
  size_t total = columns_.empty() ? 0 : 2 * (columns_.size() - 1);
  for (const size_t width : widths) total += width;
  size_t next_rule = 0;
  for (size_t r = 0; r < cells.size(); ++r) {
    for (; next_rule < rules_.size() && rules_[next_rule] <= r; ++next_rule) {
      text += indent;
      for (size_t i = 0; i < total; ++i) text += "─";
      text += '\n';
    }
    line([&](size_t c) -> const std::string& { return cells[r][c]; });
    text += '\n';
  }
  return text;
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
  static constexpr std::array<std::string_view, 7> kPrefixes = {"", "k", "M", "G", "T", "P", "E"};
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
