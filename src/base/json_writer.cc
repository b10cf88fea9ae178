#include "base/json_writer.h"

#include <array>
#include <charconv>
#include <cmath>

#include "base/printable.h"

namespace llmprof {
namespace {

// "\u001b", in two halves beyond the basic plane.
void append_unicode_escape(std::string& out, char32_t code) {
  static constexpr std::string_view kHex = "0123456789abcdef";
  if (code >= 0x10000) {
    append_unicode_escape(out, 0xD800 + ((code - 0x10000) >> 10));
    code = 0xDC00 + ((code - 0x10000) & 0x3FF);
  }
  out += "\\u";
  for (const int shift : {12, 8, 4, 0}) out += kHex[(code >> shift) & 15];
}

}  // namespace

void append_json_string(std::string& out, std::string_view text) {
  out += '"';
  for (size_t i = 0; i < text.size();) {
    const Glyph glyph = first_glyph(text.substr(i));
    i += glyph.bytes;
    if (!glyph.valid) {
      out += "\xEF\xBF\xBD";
      continue;
    }
    // An escape says the same as the character, and is harmless where JSON is printed.
    if (glyph.code >= 0x80) {
      if (is_harmful(glyph.code))
        append_unicode_escape(out, glyph.code);
      else
        out.append(text.substr(i - glyph.bytes, glyph.bytes));
      continue;
    }
    const unsigned char c = static_cast<unsigned char>(glyph.code);
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      default:
        if (c < 0x20 || c == 0x7F) {
          append_unicode_escape(out, c);
        } else {
          out += static_cast<char>(c);
        }
    }
  }
  out += '"';
}

void JsonWriter::newline() {
  if (indent_ == 0) return;
  out_ += '\n';
  out_.append(scopes_.size() * static_cast<size_t>(indent_), ' ');
}

void JsonWriter::separate() {
  if (after_key_) {
    after_key_ = false;
    return;
  }
  if (scopes_.empty()) return;
  if (!scopes_.back().empty) out_ += ',';
  scopes_.back().empty = false;
  newline();
}

JsonWriter& JsonWriter::open(char bracket) {
  separate();
  out_ += bracket;
  scopes_.push_back({bracket == '['});
  return *this;
}

JsonWriter& JsonWriter::close(char bracket) {
  const bool empty = scopes_.empty() || scopes_.back().empty;
  if (!scopes_.empty()) scopes_.pop_back();
  if (!empty) newline();
  out_ += bracket;
  return *this;
}

JsonWriter& JsonWriter::key(std::string_view name) {
  separate();
  append_json_string(out_, name);
  out_ += indent_ == 0 ? ":" : ": ";
  after_key_ = true;
  return *this;
}

JsonWriter& JsonWriter::value(std::string_view text) {
  separate();
  append_json_string(out_, text);
  return *this;
}

JsonWriter& JsonWriter::value(double number) {
  if (!std::isfinite(number)) return null();
  separate();
  std::array<char, 32> buffer;
  const std::to_chars_result end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), number);
  out_.append(buffer.data(), end.ptr);
  return *this;
}

JsonWriter& JsonWriter::value(int64_t number) {
  separate();
  out_ += std::to_string(number);
  return *this;
}

JsonWriter& JsonWriter::value(uint64_t number) {
  separate();
  out_ += std::to_string(number);
  return *this;
}

JsonWriter& JsonWriter::value(bool flag) {
  separate();
  out_ += flag ? "true" : "false";
  return *this;
}

JsonWriter& JsonWriter::null() {
  separate();
  out_ += "null";
  return *this;
}

}  // namespace llmprof
