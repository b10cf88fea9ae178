#include "base/printable.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace llmprof {
namespace {

struct Range {
  char32_t first, last;
};

// Sorted. C0, DEL and C1; soft hyphen and Arabic letter mark; Mongolian vowel separator; zero width and direction;
// separators and embeddings; joiners, isolates and deprecated format characters; byte-order mark; annotations; tags.
constexpr Range kHarmful[] = {{0x00, 0x1F},     {0x7F, 0x9F},     {0xAD, 0xAD},      {0x61C, 0x61C},
                              {0x180E, 0x180E}, {0x200B, 0x200F}, {0x2028, 0x202E},  {0x2060, 0x206F},
                              {0xFEFF, 0xFEFF}, {0xFFF9, 0xFFFB}, {0xE0000, 0xE007F}};

// Unicode's East Asian Width W and F, whole blocks where all but a few signs are.
constexpr Range kWide[] = {{0x1100, 0x115F},   {0x231A, 0x231B},   {0x2329, 0x232A},   {0x23E9, 0x23EC},
                           {0x2E80, 0x303E},   {0x3041, 0x33FF},   {0x3400, 0x4DBF},   {0x4E00, 0xA4CF},
                           {0xA960, 0xA97F},   {0xAC00, 0xD7A3},   {0xF900, 0xFAFF},   {0xFE30, 0xFE6F},
                           {0xFF00, 0xFF60},   {0xFFE0, 0xFFE6},   {0x16FE0, 0x18AFF}, {0x1B000, 0x1B2FF},
                           {0x1F300, 0x1F64F}, {0x1F680, 0x1F6FF}, {0x1F900, 0x1FAFF}, {0x20000, 0x3FFFD}};

// Marks that stand on the character before them: the common scripts.
constexpr Range kCombining[] = {{0x300, 0x36F},   {0x483, 0x489},   {0x591, 0x5BD},    {0x610, 0x61A},
                                {0x64B, 0x65F},   {0x93C, 0x93C},   {0x941, 0x948},    {0x94D, 0x94D},
                                {0xE31, 0xE31},   {0xE34, 0xE3A},   {0xE47, 0xE4E},    {0x1AB0, 0x1AFF},
                                {0x1DC0, 0x1DFF}, {0x20D0, 0x20FF}, {0x302A, 0x302D},  {0x3099, 0x309A},
                                {0xFE00, 0xFE0F}, {0xFE20, 0xFE2F}, {0xE0100, 0xE01EF}};

template <size_t N>
constexpr bool sorted(const Range (&ranges)[N]) {
  for (size_t i = 1; i < N; ++i)
    if (ranges[i].first <= ranges[i - 1].last) return false;
  return true;
}
static_assert(sorted(kHarmful) && sorted(kWide) && sorted(kCombining));

template <size_t N>
bool within(const Range (&ranges)[N], char32_t code) {
  const Range* const after = std::upper_bound(std::begin(ranges), std::end(ranges), code,
                                              [](char32_t value, const Range& range) { return value < range.first; });
  return after != std::begin(ranges) && code <= std::prev(after)->last;
}

size_t width_of(const Glyph& glyph) {
  if (!glyph.valid || glyph.code < 0x300) return 1;
  return within(kCombining, glyph.code) ? 0 : within(kWide, glyph.code) ? 2 : 1;
}

// What stands for a character where only ASCII can be shown; null if nothing does.
const char* likeness(char32_t code) {
  switch (code) {
    case U'…':
      return "...";
    case U'·':
    case U'•':
      return "|";
    case U'─':
    case U'–':
    case U'—':
    case U'−':
    case U'‐':
    case U'‑':
      return "-";
    case U'│':
      return "|";
    case U'→':
      return "->";
    case U'←':
      return "<-";
    case U'⇒':
      return "=>";
    case U'µ':
    case U'μ':
      return "u";
    case U'×':
      return "x";
    case U'≤':
      return "<=";
    case U'≥':
      return ">=";
    case U'≈':
      return "~";
    case U'±':
      return "+-";
    case U'‘':
    case U'’':
      return "'";
    case U'“':
    case U'”':
      return "\"";
    case U'\u00A0':
    case U'\u202F':
      return " ";
    default:
      return nullptr;
  }
}

// Our own: reset, bold, dim and the accent.
constexpr std::string_view kInk[] = {"\033[0m", "\033[1m", "\033[2m", "\033[1;36m"};

std::string cleaned(std::string_view text, Charset charset, bool lines, bool ink) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    if (const size_t own = ink ? ink_length(text) : 0; own != 0) {
      out += text.substr(0, own);
      text.remove_prefix(own);
      continue;
    }
    const Glyph glyph = first_glyph(text);
    const bool ascii = charset == Charset::kAscii && (!glyph.valid || glyph.code >= 0x80);
    if (lines && glyph.code == U'\n') {
      out += '\n';
    } else if (!glyph.valid || is_harmful(glyph.code)) {
      append_escaped(out, glyph);
    } else if (!ascii) {
      out += text.substr(0, glyph.bytes);
    } else if (const char* const alike = likeness(glyph.code); alike != nullptr) {
      out += alike;
    } else {
      append_escaped(out, glyph);
    }
    text.remove_prefix(glyph.bytes);
  }
  return out;
}

}  // namespace

Glyph first_glyph(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return {first, 1, true};
  size_t length = 0;
  unsigned low = 0x80, high = 0xBF;
  if (first >= 0xC2 && first <= 0xDF) {
    length = 2;
  } else if (first >= 0xE0 && first <= 0xEF) {
    length = 3;
    if (first == 0xE0) low = 0xA0;
    if (first == 0xED) high = 0x9F;
  } else if (first >= 0xF0 && first <= 0xF4) {
    length = 4;
    if (first == 0xF0) low = 0x90;
    if (first == 0xF4) high = 0x8F;
  }
  const Glyph alone{first, 1, false};
  if (length == 0 || length > text.size() || byte(1) < low || byte(1) > high) return alone;
  char32_t code = first & (0xFFU >> (length + 1));
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return alone;
    code = code << 6 | (byte(i) & 0x3F);
  }
  return {code, length, true};
}

bool is_harmful(char32_t code) {
  if (code >= 0x20 && code < 0x7F) return false;
  return within(kHarmful, code);
}

void append_escaped(std::string& out, const Glyph& glyph) {
  const uint32_t code = glyph.code;
  if (code == '\n') {
    out += "\\n";
  } else if (code == '\t') {
    out += "\\t";
  } else if (code == '\r') {
    out += "\\r";
  } else if (!glyph.valid || code < 0x80) {
    out += fmt::format("\\x{:02x}", code);
  } else {
    out += code < 0x10000 ? fmt::format("\\u{:04x}", code) : fmt::format("\\U{:08x}", code);
  }
}

std::string printable(std::string_view text, Charset charset) { return cleaned(text, charset, false, false); }

std::string printable_lines(std::string_view text, Charset charset, bool ink) {
  return cleaned(text, charset, true, ink);
}

size_t ink_length(std::string_view text) {
  for (const std::string_view own : kInk)
    if (text.starts_with(own)) return own.size();
  return 0;
}

size_t prefix_of_width(std::string_view text, size_t width) {
  size_t at = 0, taken = 0;
  while (at < text.size()) {
    const size_t own = ink_length(text.substr(at));
    const Glyph glyph = first_glyph(text.substr(at));
    const size_t more = own != 0 ? 0 : width_of(glyph);
    if (taken + more > width) break;
    taken += more;
    at += own != 0 ? own : glyph.bytes;
  }
  return at;
}

size_t display_width(std::string_view text) {
  size_t width = 0;
  while (!text.empty()) {
    const size_t own = ink_length(text);
    const Glyph glyph = first_glyph(text);
    if (own == 0) width += width_of(glyph);
    text.remove_prefix(own != 0 ? own : glyph.bytes);
  }
  return width;
}

std::string ellipsize(std::string_view text, size_t width, Charset charset) {
  if (display_width(text) <= width) return std::string(text);
  const std::string_view mark = charset == Charset::kUtf8 ? "…" : width > 6 ? "..." : ".";
  const size_t taken = display_width(mark);
  if (width < taken) return {};
  return std::string(text.substr(0, prefix_of_width(text, width - taken))).append(mark);
}

}  // namespace llmprof
