#include "base/json_document.h"

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>

namespace llmprof {
namespace {

bool is_space(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }
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

// Bytes of the UTF-8 character at `p`, 0 if there is none (Unicode 15, table 3-7: no overlong forms, no surrogates).
size_t utf8_length(const char* p, const char* end) {
  const auto byte = [&](size_t i) { return p + i < end ? static_cast<unsigned char>(p[i]) : 0U; };
  const auto follows = [&](size_t i) { return (byte(i) & 0xC0U) == 0x80U; };
  const unsigned first = byte(0), second = byte(1);
  if (first < 0x80) return 1;
  if (first < 0xC2 || first > 0xF4 || !follows(1)) return 0;
  if (first < 0xE0) return 2;
  if (!follows(2)) return 0;
  if (first < 0xF0) return (first == 0xE0 && second < 0xA0) || (first == 0xED && second > 0x9F) ? 0 : 3;
  if (!follows(3)) return 0;
  return (first == 0xF0 && second < 0x90) || (first == 0xF4 && second > 0x8F) ? 0 : 4;
}

// End of the number that starts at `p` by JSON's grammar, nullptr if there is none.
const char* number_end(const char* p, const char* end, bool& whole) {
  const auto digits = [&] {
    const char* const first = p;
    while (p < end && is_digit(*p)) ++p;
    return p > first;
  };
  whole = true;
  if (p < end && *p == '-') ++p;
  if (p < end && *p == '0')
    ++p;
  else if (!digits())
    return nullptr;
  if (p < end && *p == '.') {
    whole = false;
    ++p;
    if (!digits()) return nullptr;
  }
  if (p < end && (*p == 'e' || *p == 'E')) {
    whole = false;
    ++p;
    if (p < end && (*p == '+' || *p == '-')) ++p;
    if (!digits()) return nullptr;
  }
  return p;
}

template <class T>
T from_bits(uint64_t bits) {
  T value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
template <class T>
uint64_t to_bits(T value) {
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  return bits;
}

}  // namespace

// One pass over the text, with a stack of the arrays and objects that are open.
class JsonParser {
 public:
  explicit JsonParser(std::string_view text) : begin_(text.data()), p_(begin_), end_(begin_ + text.size()) {}

  Result<JsonDocument> run() {
    if (std::string_view(begin_, static_cast<size_t>(end_ - begin_)).starts_with("\xEF\xBB\xBF")) p_ += 3;
    bool ok = value();
    while (ok && !open_.empty()) ok = next();
    skip_space();
    if (ok && p_ != end_) ok = expected("the end of the text");
    if (!ok) return fail(std::move(error_));
    return std::move(document_);
  }

 private:
  struct Open {
    uint64_t node;
    bool object;
  };

  void skip_space() {
    while (p_ < end_ && is_space(*p_)) ++p_;
  }

  bool failed(const std::string& sentence) {
    size_t line = 1;
    const char* start = begin_;
    for (const char* at = begin_; at < p_; ++at)
      if (*at == '\n') {
        ++line;
        start = at + 1;
      }
    error_ = sentence + " at line " + std::to_string(line) + ", column " + std::to_string(p_ - start + 1);
    return false;
  }

  bool expected(const char* what) {
    std::string found = "the end";
    if (p_ < end_) {
      const unsigned char c = static_cast<unsigned char>(*p_);
      found = c > ' ' && c < 0x7F ? std::string("\"") + *p_ + "\"" : "byte " + std::to_string(c);
    }
    return failed(std::string("expected ") + what + ", found " + found);
  }

  JsonNode& add(JsonKind kind, uint64_t bits = 0, uint32_t length = 0) {
    document_.nodes_.push_back({kind, length, bits, document_.nodes_.size() + 1});
    return document_.nodes_.back();
  }

  bool value() {
    skip_space();
    if (p_ >= end_) return expected("a value");
    switch (*p_) {
      case '{':
      case '[':
        return open();
      case '"':
        return text();
      case 't':
        return word("true", JsonKind::kBool, 1);
      case 'f':
        return word("false", JsonKind::kBool, 0);
      case 'n':
        return word("null", JsonKind::kNull, 0);
      default:
        return number();
    }
  }

  bool open() {
    if (open_.size() == kJsonDepthMax) return failed("expected at most 1024 levels of nesting, found more");
    const bool object = *p_ == '{';
    open_.push_back({document_.nodes_.size(), object});
    add(object ? JsonKind::kObject : JsonKind::kArray);
    ++p_;
    skip_space();
    if (p_ < end_ && *p_ == (object ? '}' : ']')) return close();
    return entry();
  }

  // Behind a value, inside an array or object.
  bool next() {
    skip_space();
    const bool object = open_.back().object;
    if (p_ < end_ && *p_ == (object ? '}' : ']')) return close();
    if (p_ >= end_ || *p_ != ',') return expected(object ? "\",\" or \"}\"" : "\",\" or \"]\"");
    ++p_;
    return entry();
  }

  bool entry() {
    JsonNode& parent = document_.nodes_[open_.back().node];
    if (parent.length == UINT32_MAX) return failed("expected at most 4294967295 entries, found more");
    ++parent.length;
    if (open_.back().object) {
      skip_space();
      if (p_ >= end_ || *p_ != '"') return expected("a key in quotes");
      if (!text()) return false;
      skip_space();
      if (p_ >= end_ || *p_ != ':') return expected("\":\" behind the key");
      ++p_;
    }
    return value();
  }

  bool close() {
    ++p_;
    document_.nodes_[open_.back().node].end = document_.nodes_.size();
    open_.pop_back();
    return true;
  }

  bool word(std::string_view name, JsonKind kind, uint64_t bits) {
    if (!std::string_view(p_, static_cast<size_t>(end_ - p_)).starts_with(name)) return expected("a value");
    p_ += name.size();
    add(kind, bits);
    return true;
  }

  bool number() {
    bool whole = false;
    const char* const end = number_end(p_, end_, whole);
    if (end == nullptr) return expected("a value");
    int64_t integer = 0;
    uint64_t natural = 0;
    double real = 0;
    if (whole && std::from_chars(p_, end, integer).ec == std::errc()) {
      add(JsonKind::kInteger, to_bits(integer));
    } else if (whole && *p_ != '-' && std::from_chars(p_, end, natural).ec == std::errc()) {
      add(JsonKind::kNatural, natural);
    } else {
      // from_chars does not say whether what is out of range is too small, which is 0, or too large.
      if (std::from_chars(p_, end, real).ec != std::errc()) real = std::strtod(std::string(p_, end).c_str(), nullptr);
      if (!std::isfinite(real)) return failed("expected a number that fits a double, found a larger one");
      add(JsonKind::kReal, to_bits(real));
    }
    p_ = end;
    return true;
  }

  bool text() {
    std::string& bytes = document_.bytes_;
    const size_t start = bytes.size();
    ++p_;
    while (true) {
      const char* const first = p_;
      while (p_ < end_ && *p_ != '"' && *p_ != '\\' && static_cast<unsigned char>(*p_) >= 0x20) {
        const size_t length = utf8_length(p_, end_);
        if (length == 0) return failed("expected UTF-8, found byte " + std::to_string(static_cast<unsigned char>(*p_)));
        p_ += length;
      }
      bytes.append(first, p_);
      if (p_ >= end_) return expected("the closing quote of a text");
      if (*p_ == '"') break;
      if (*p_ != '\\')
        return failed("expected an escape for byte " + std::to_string(*p_) + " in a text, found it as it is");
      if (!escape()) return false;
    }
    ++p_;
    if (bytes.size() - start > UINT32_MAX) return failed("expected a text of at most 4 GiB, found more");
    add(JsonKind::kText, start, static_cast<uint32_t>(bytes.size() - start));
    return true;
  }

  bool escape() {
    constexpr std::string_view kLetters = "\"\\/bfnrt", kMeant = "\"\\/\b\f\n\r\t";
    if (++p_ >= end_) return expected("the closing quote of a text");
    if (*p_ == 'u') return unicode();
    const size_t which = kLetters.find(*p_);
    if (which == std::string_view::npos) return expected("one of \"\\/bfnrtu behind a backslash");
    document_.bytes_ += kMeant[which];
    ++p_;
    return true;
  }

  bool unicode() {
    uint32_t code = 0, low = 0;
    if (!hex4(code)) return false;
    if (code >= 0xD800 && code < 0xDC00) {
      if (end_ - p_ < 2 || p_[0] != '\\' || p_[1] != 'u') return expected("the second half of a surrogate pair");
      ++p_;
      if (!hex4(low)) return false;
      if (low < 0xDC00 || low > 0xDFFF)
        return failed("expected the second half of a surrogate pair before this, found none");
      code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    } else if (code >= 0xDC00 && code <= 0xDFFF) {
      return failed("expected the first half of a surrogate pair before this, found none");
    }
    append_utf8(document_.bytes_, code);
    return true;
  }

  // `p_` stands on the u, afterwards behind the four digits.
  bool hex4(uint32_t& code) {
    ++p_;
    const char* const end = end_ - p_ < 4 ? end_ : p_ + 4;
    const std::from_chars_result got = std::from_chars(p_, end, code, 16);
    if (end - p_ < 4 || got.ec != std::errc() || got.ptr != end) return expected("four hexadecimal digits behind \\u");
    p_ = end;
    return true;
  }

  const char* begin_;
  const char* p_;
  const char* end_;
  JsonDocument document_;
  std::vector<Open> open_;
  std::string error_;
};

Result<JsonDocument> JsonDocument::parse(std::string_view text) { return JsonParser(text).run(); }

JsonValue JsonDocument::root() const { return nodes_.empty() ? JsonValue() : JsonValue(this, 0); }

std::optional<bool> JsonValue::boolean() const {
  return kind() == JsonKind::kBool ? std::optional(node().bits != 0) : std::nullopt;
}

std::optional<int64_t> JsonValue::integer() const {
  return kind() == JsonKind::kInteger ? std::optional(from_bits<int64_t>(node().bits)) : std::nullopt;
}

std::optional<uint64_t> JsonValue::natural() const {
  if (kind() == JsonKind::kNatural) return node().bits;
  const std::optional<int64_t> whole = integer();
  return whole && *whole >= 0 ? std::optional(static_cast<uint64_t>(*whole)) : std::nullopt;
}

std::optional<double> JsonValue::number() const {
  if (kind() == JsonKind::kReal) return from_bits<double>(node().bits);
  if (kind() == JsonKind::kNatural) return static_cast<double>(node().bits);
  const std::optional<int64_t> whole = integer();
  return whole ? std::optional(static_cast<double>(*whole)) : std::nullopt;
}

std::optional<std::string_view> JsonValue::text() const {
  if (kind() != JsonKind::kText) return std::nullopt;
  return std::string_view(document_->bytes_).substr(node().bits, node().length);
}

size_t JsonValue::size() const { return is_array() || is_object() ? node().length : 0; }

std::optional<JsonValue> JsonValue::find(std::string_view name) const {
  for (const JsonMember member : members())
    if (member.name == name) return member.value;
  return std::nullopt;
}

JsonValue::Entries JsonValue::entries() const {
  return is_array() ? Entries(document_, at_ + 1, node().end) : Entries(nullptr, 0, 0);
}

JsonValue::Members JsonValue::members() const {
  return is_object() ? Members(document_, at_ + 1, node().end) : Members(nullptr, 0, 0);
}

}  // namespace llmprof
