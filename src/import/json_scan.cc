#include "import/json_scan.h"

#include <charconv>
#include <cmath>

namespace llmprof::json {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

void append_utf8(std::string& out, uint32_t code) {
  const auto put = [&](uint32_t byte) { out += static_cast<char>(byte); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xC0 | (code >> 6));
    put(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    put(0xE0 | (code >> 12));
    put(0x80 | ((code >> 6) & 0x3F));
    put(0x80 | (code & 0x3F));
  } else {
    put(0xF0 | (code >> 18));
    put(0x80 | ((code >> 12) & 0x3F));
    put(0x80 | ((code >> 6) & 0x3F));
    put(0x80 | (code & 0x3F));
  }
}

// Four hex digits at `at`; false if there are not four.
bool hex4(std::string_view text, size_t at, uint32_t& code) {
  if (at + 4 > text.size()) return false;
  const std::from_chars_result got = std::from_chars(text.data() + at, text.data() + at + 4, code, 16);
  return got.ec == std::errc() && got.ptr == text.data() + at + 4;
}

// The general form: sign, digits, point, digits, exponent. At most 38 significant digits matter.
bool scientific_to_ns(std::string_view text, int64_t& ns) {
  size_t i = 0;
  const bool negative = i < text.size() && text[i] == '-';
  if (i < text.size() && (text[i] == '-' || text[i] == '+')) ++i;
  unsigned __int128 digits = 0;
  int64_t scale = 3;  // microseconds to nanoseconds
  bool any = false, point = false;
  constexpr unsigned __int128 kFull = static_cast<unsigned __int128>(UINT64_MAX) * 1000000000;
  for (; i < text.size(); ++i) {
    if (text[i] == '.' && !point) {
      point = true;
    } else if (is_digit(text[i])) {
      any = true;
      if (digits < kFull) {
        digits = digits * 10 + static_cast<unsigned>(text[i] - '0');
        scale -= point;
      } else {
        scale += !point;
      }
    } else {
      break;
    }
  }
  if (!any) return false;
  if (i < text.size()) {
    if (text[i] != 'e' && text[i] != 'E') return false;
    size_t at = i + 1;
    if (at < text.size() && text[at] == '+') ++at;
    int64_t exponent = 0;
    const std::from_chars_result got = std::from_chars(text.data() + at, text.data() + text.size(), exponent);
    if (got.ec != std::errc() || got.ptr != text.data() + text.size()) return false;
    if (exponent > 1000 || exponent < -1000) return digits == 0 ? (ns = 0, true) : false;
    scale += exponent;
  }
  if (digits == 0) return ns = 0, true;
  for (; scale > 0; --scale) {
    if (digits > static_cast<unsigned __int128>(INT64_MAX)) return false;
    digits *= 10;
  }
  unsigned last = 0;
  for (; scale < 0 && digits != 0; ++scale) {
    last = static_cast<unsigned>(digits % 10);
    digits /= 10;
  }
  if (scale == 0 && last >= 5) ++digits;
  if (digits > static_cast<unsigned __int128>(INT64_MAX)) return false;
  ns = static_cast<int64_t>(digits);
  if (negative) ns = -ns;
  return true;
}

}  // namespace

bool micros_to_ns(std::string_view text, int64_t& ns) {
  const char* p = text.data();
  const char* end = p + text.size();
  const bool negative = p < end && *p == '-';
  if (negative) ++p;
  const char* first = p;
  uint64_t micros = 0;  // wraps for more than 19 digits, which are not used
  while (p < end && is_digit(*p)) micros = micros * 10 + static_cast<uint64_t>(*p++ - '0');
  const std::ptrdiff_t whole = p - first;
  constexpr uint64_t kMicrosMax = INT64_MAX / 1000 - 1;
  if (whole == 0 || whole > 16 || micros > kMicrosMax) return scientific_to_ns(text, ns);
  int64_t value = static_cast<int64_t>(micros) * 1000;
  if (p < end && *p == '.') {
    ++p;
    int64_t unit = 100;
    while (p < end && is_digit(*p) && unit != 0) {
      value += (*p++ - '0') * unit;
      unit /= 10;
    }
    if (p < end && is_digit(*p)) value += *p >= '5';
    while (p < end && is_digit(*p)) ++p;
  }
  if (p != end) return scientific_to_ns(text, ns);
  ns = negative ? -value : value;
  return true;
}

bool parse_int(std::string_view text, int64_t& value) {
  const std::from_chars_result got = std::from_chars(text.data(), text.data() + text.size(), value);
  if (got.ec == std::errc() && got.ptr == text.data() + text.size()) return true;
  double number = 0;
  if (!parse_double(text, number) || number != std::floor(number) || std::fabs(number) > 9.0e15) return false;
  value = static_cast<int64_t>(number);
  return true;
}

bool parse_uint(std::string_view text, uint64_t& value) {
  const std::from_chars_result got = std::from_chars(text.data(), text.data() + text.size(), value);
  if (got.ec == std::errc() && got.ptr == text.data() + text.size()) return true;
  int64_t number = 0;
  if (!parse_int(text, number)) return false;
  value = static_cast<uint64_t>(number);
  return true;
}

bool parse_double(std::string_view text, double& value) {
  const std::from_chars_result got = std::from_chars(text.data(), text.data() + text.size(), value);
  return got.ec == std::errc() && got.ptr == text.data() + text.size() && std::isfinite(value);
}

std::string unescape(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\' || i + 1 >= text.size()) {
      out += text[i];
      continue;
    }
    const char c = text[++i];
    switch (c) {
      case 'n':
        out += '\n';
        break;
      case 't':
        out += '\t';
        break;
      case 'r':
        out += '\r';
        break;
      case 'b':
        out += '\b';
        break;
      case 'f':
        out += '\f';
        break;
      case 'u': {
        uint32_t code = 0, low = 0;
        if (!hex4(text, i + 1, code)) {
          out += "\\u";
          break;
        }
        i += 4;
        if (code >= 0xD800 && code < 0xDC00 && i + 2 < text.size() && text[i + 1] == '\\' && text[i + 2] == 'u' &&
            hex4(text, i + 3, low) && low >= 0xDC00 && low < 0xE000) {
          code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
          i += 6;
        }
        append_utf8(out, code >= 0xD800 && code < 0xE000 ? 0xFFFD : code);
        break;
      }
      default:
        out += c;
    }
  }
  return out;
}

}  // namespace llmprof::json
