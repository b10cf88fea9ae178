#include "import/ncu_values.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

namespace llmprof::ncu {
namespace {

constexpr size_t kNumberBytesMax = 64;
constexpr size_t kExactDigits = 15;  // every whole number of so many is a double
constexpr int kExponentMax = 30;     // of prefixes: two of them at most

bool is_digit(char c) { return c >= '0' && c <= '9'; }

struct Prefix {
  std::string_view text;
  int exponent;
};

// Lengths of time against one second, by the names of old versions and of new ones.
std::optional<int> seconds_exponent(std::string_view word) {
  constexpr std::array kNames = {
      Prefix{"second", 0}, Prefix{"msecond", -3}, Prefix{"usecond", -6}, Prefix{"nsecond", -9}, Prefix{"psecond", -12},
      Prefix{"s", 0},      Prefix{"ms", -3},      Prefix{"us", -6},      Prefix{"ns", -9},      Prefix{"ps", -12}};
  for (const Prefix& name : kNames)
    if (name.text == word) return name.exponent;
  return std::nullopt;
}

// One factor of a unit. A capital prefix stands before a word in small letters (Kbyte, Ghz), or alone.
Unit plain_word(std::string_view word) {
  constexpr std::array kPrefixes = {Prefix{"K", 3}, Prefix{"M", 6}, Prefix{"G", 9}, Prefix{"T", 12}, Prefix{"P", 15}};
  for (const Prefix& prefix : kPrefixes) {
    if (!word.starts_with(prefix.text)) continue;
    const std::string_view rest = word.substr(1);
    if (rest.size() == 1 || !std::all_of(rest.begin(), rest.end(), [](char c) { return c >= 'a' && c <= 'z'; })) break;
    return {std::string(rest), prefix.exponent};
  }
  return {std::string(word), 0};
}

// Marks between groups of digits that are more than one byte: no-break spaces, wide and narrow, and the apostrophe.
size_t group_mark(std::string_view text, char decimal) {
  for (const std::string_view mark : {"\xC2\xA0", "\xE2\x80\xAF", "\xE2\x80\x99"})
    if (text.starts_with(mark)) return mark.size();
  const char c = text.front();
  const bool mark = c == '\'' || c == ' ' || (c == ',' && decimal == '.') || (c == '.' && decimal == ',');
  return mark ? 1 : 0;
}

// A number as C++ writes it.
class PlainNumber {
 public:
  void add(char c) { text_[size_++] = c; }
  void add_exponent(int exponent) {
    add('e');
    size_ = static_cast<size_t>(std::to_chars(text_.data() + size_, text_.data() + text_.size(), exponent).ptr -
                                text_.data());
  }
  std::optional<double> value() const {
    double value = 0;
    const auto [end, error] = std::from_chars(text_.data(), text_.data() + size_, value);
    if (error != std::errc() || end != text_.data() + size_) return std::nullopt;
    return value;
  }

 private:
  std::array<char, kNumberBytesMax + 8> text_{};  // the digits, and an exponent
  size_t size_ = 0;
};

// What stands before a list of instances.
std::string_view without_instances(std::string_view text) {
  const size_t list = text.find(" (");
  return list != std::string_view::npos && list > 0 && text.back() == ')' ? text.substr(0, list) : text;
}

}  // namespace

Unit plain_unit(std::string_view unit) {
  const size_t slash = unit.find('/');
  const std::string_view above = unit.substr(0, slash);
  Unit out;
  if (const std::optional<int> seconds = seconds_exponent(above))
    out = {"ns", *seconds + 9};
  else
    out = plain_word(above);
  if (slash == std::string_view::npos) return out;
  const std::string_view below = unit.substr(slash + 1);
  if (const std::optional<int> seconds = seconds_exponent(below)) {
    out.name += "/s";
    out.exponent -= *seconds;
  } else {
    out.name += "/";
    out.name += below;
  }
  return out;
}

std::optional<double> parse_grouped(std::string_view text, char decimal, int exponent) {
  // Most cells are small whole numbers.
  if (exponent == 0 && text.size() <= kExactDigits)
    if (const std::optional<int64_t> value = parse_whole(text)) return static_cast<double>(*value);
  text = without_instances(text);
  if (text.empty() || text.size() > kNumberBytesMax || std::abs(exponent) > kExponentMax) return std::nullopt;
  PlainNumber plain;
  size_t at = 0;
  if (text[0] == '-' || text[0] == '+') {
    if (text[0] == '-') plain.add('-');
    ++at;
  }
  size_t group = 0;  // digits since the last mark
  bool grouped = false, fraction = false, power = false;
  while (at < text.size()) {
    const char c = text[at];
    const bool whole_group = !grouped || group == 3;  // the last group before a fraction or a power
    if (is_digit(c)) {
      plain.add(c);
      ++group;
      ++at;
    } else if (c == decimal && !fraction && !power && group > 0) {
      if (!whole_group) return std::nullopt;
      fraction = true;
      group = 0;
      plain.add('.');
      ++at;
    } else if ((c == 'e' || c == 'E') && !power && group > 0 && (fraction || whole_group)) {
      power = true;
      group = 0;
      plain.add('e');
      ++at;
      if (at < text.size() && (text[at] == '-' || text[at] == '+')) {
        if (text[at] == '-') plain.add('-');
        ++at;
      }
    } else {
      const size_t mark = group_mark(text.substr(at), decimal);
      // Groups have three digits, the first one to three; in India all but the last have two.
      if (mark == 0 || fraction || power || group == 0 || group > 3 || (grouped && group < 2)) return std::nullopt;
      grouped = true;
      group = 0;
      at += mark;
    }
  }
  if (group == 0 || (grouped && !fraction && !power && group != 3)) return std::nullopt;
  if (!power && exponent != 0) plain.add_exponent(exponent);
  std::optional<double> value = plain.value();
  if (value && power && exponent != 0) *value *= std::pow(10.0, exponent);
  return value && std::isfinite(*value) ? value : std::nullopt;
}

std::optional<int64_t> parse_whole(std::string_view text) {
  constexpr size_t kDigitsMax = 18;
  if (text.empty() || text.size() > kDigitsMax) return std::nullopt;
  int64_t value = 0;
  for (const char c : text) {
    if (!is_digit(c)) return std::nullopt;
    value = value * 10 + (c - '0');
  }
  return value;
}

std::optional<std::array<int32_t, 3>> parse_size(std::string_view text) {
  if (text.starts_with('(') && text.ends_with(')')) text = text.substr(1, text.size() - 2);
  std::array<int32_t, 3> out{};
  for (size_t axis = 0; axis < out.size(); ++axis) {
    while (text.starts_with(' ')) text.remove_prefix(1);
    const size_t end = axis + 1 < out.size() ? text.find(',') : text.size();
    if (end == std::string_view::npos) return std::nullopt;
    const std::optional<int64_t> value = parse_whole(text.substr(0, end));
    if (!value || *value > std::numeric_limits<int32_t>::max()) return std::nullopt;
    out[axis] = static_cast<int32_t>(*value);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

std::optional<std::array<int32_t, 2>> parse_capability(std::string_view text) {
  const size_t point = text.find_first_of(".,");
  if (point == std::string_view::npos) return std::nullopt;
  const std::optional<int64_t> major = parse_whole(text.substr(0, point)), minor = parse_whole(text.substr(point + 1));
  constexpr int64_t kMost = 1000;
  if (!major || !minor || *major > kMost || *minor > kMost) return std::nullopt;
  return std::array{static_cast<int32_t>(*major), static_cast<int32_t>(*minor)};
}

// 552  "<default domain>:decode:none:none:none:none:none:none"  "<default domain>:decode_step:none:..."
std::string range_texts(std::string_view cell) {
  constexpr size_t kFieldsBehind = 6;  // payload, its type, colour, ... of a range; its text may hold colons
  std::string out;
  while (true) {
    const size_t begin = cell.find('"');
    if (begin == std::string_view::npos) return out;
    const size_t end = cell.find('"', begin + 1);
    if (end == std::string_view::npos) return out;
    std::string_view range = cell.substr(begin + 1, end - begin - 1);
    cell.remove_prefix(end + 1);
    size_t cut = 0;
    for (size_t colon; cut < kFieldsBehind && (colon = range.rfind(':')) != std::string_view::npos; ++cut)
      range = range.substr(0, colon);
    const size_t domain = range.find(':');
    if (cut < kFieldsBehind || domain == std::string_view::npos) continue;
    if (!out.empty()) out += '\n';
    for (const char c : range.substr(domain + 1)) out += c == '\n' ? ' ' : c;
  }
}

}  // namespace llmprof::ncu
