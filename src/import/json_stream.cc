#include "import/json_stream.h"

#include <charconv>
#include <limits>

#include "import/json_scan.h"

namespace llmprof::json {

bool JsonStream::fill() {
  at_ = 0;
  size_ = input_.read(buffer_.data(), buffer_.size());
  return size_ > 0;
}

bool JsonStream::skip_blanks() {
  while (!at_end()) {
    const char c = buffer_[at_];
    if (!is_space(c)) return true;
    line_ += c == '\n';
    ++at_;
  }
  return false;
}

JsonStream::Token JsonStream::next() {
  if (!skip_blanks()) return ended();
  char c = buffer_[at_];
  if (expect_ == Expect::kCommaOrEnd) {
    if (c == '}' || c == ']') return end(c);
    if (c != ',') return Token::kBad;
    ++at_;
    expect_ = open_.back() == '{' ? Expect::kKey : Expect::kValue;
    if (!skip_blanks()) return ended();
    c = buffer_[at_];
  }
  if (open_.empty()) document_line_ = line_;
  switch (expect_) {
    case Expect::kFirstKey:
      return c == '}' ? end(c) : key();
    case Expect::kKey:
      return key();
    case Expect::kFirstValue:
      return c == ']' ? end(c) : value();
    default:
      return value();
  }
}

JsonStream::Token JsonStream::begin(char bracket) {
  if (open_.size() == nesting_max_) return Token::kBad;
  ++at_;
  open_.push_back(bracket);
  expect_ = bracket == '{' ? Expect::kFirstKey : Expect::kFirstValue;
  return bracket == '{' ? Token::kObject : Token::kArray;
}

JsonStream::Token JsonStream::end(char bracket) {
  if (open_.empty() || open_.back() != (bracket == '}' ? '{' : '[')) return Token::kBad;
  ++at_;
  open_.pop_back();
  value_is_read();
  return bracket == '}' ? Token::kObjectEnd : Token::kArrayEnd;
}

JsonStream::Token JsonStream::value() {
  const char c = buffer_[at_];
  if (c == '{' || c == '[') return begin(c);
  if (c != '"') return plain();
  if (!read_text()) return input_ended_ ? Token::kCut : Token::kBad;
  value_is_read();
  return Token::kText;
}

JsonStream::Token JsonStream::key() {
  if (buffer_[at_] != '"') return Token::kBad;
  if (!read_text()) return input_ended_ ? Token::kCut : Token::kBad;
  if (!skip_blanks()) return ended();
  if (buffer_[at_] != ':') return Token::kBad;
  ++at_;
  expect_ = Expect::kValue;
  return Token::kKey;
}

// A number or a word. At the end of the input it may be cut: whole numbers look as well as halves of them.
JsonStream::Token JsonStream::plain() {
  text_.clear();
  text_cut_ = false;
  while (!at_end()) {
    const char c = buffer_[at_];
    if (is_space(c) || c == ',' || c == ']' || c == '}' || c == ':' || c == '"' || c == '[' || c == '{') break;
    if (text_.size() == kTokenMax) return Token::kBad;
    text_ += c;
    ++at_;
  }
  if (text_.empty()) return Token::kBad;
  if (at_ == size_ && !open_.empty()) return Token::kCut;
  value_is_read();
  if (text_ == "true" || text_ == "false" || text_ == "null") return Token::kWord;
  double ignored = 0;
  return parse_any_number(text_, ignored) ? Token::kNumber : Token::kBad;
}

// From the opening quote to behind the closing one. A raw line feed is no JSON: a lost quote swallows one line only.
bool JsonStream::read_text() {
  ++at_;
  text_.clear();
  text_cut_ = input_ended_ = false;
  bool escaped = false;
  const auto keep = [&](std::string_view piece) {
    const size_t room = kTextMax - text_.size();
    text_cut_ = text_cut_ || piece.size() > room;
    text_.append(piece.substr(0, room));
  };
  while (!at_end()) {
    const std::string_view rest(buffer_.data() + at_, size_ - at_);
    const size_t stop = rest.find_first_of("\"\\\n");
    keep(rest.substr(0, stop));
    if (stop == std::string_view::npos) {
      at_ = size_;
      continue;
    }
    at_ += stop + 1;
    if (rest[stop] == '\n') {
      --at_;
      return false;
    }
    if (rest[stop] == '"') {
      if (escaped) text_ = unescape(text_);
      return true;
    }
    escaped = true;
    keep("\\");
    if (at_end()) break;
    keep(std::string_view(buffer_.data() + at_, 1));
    ++at_;
  }
  input_ended_ = true;
  return false;
}

void JsonStream::skip_line() {
  open_.clear();
  expect_ = Expect::kValue;
  while (!at_end()) {
    const std::string_view rest(buffer_.data() + at_, size_ - at_);
    const size_t stop = rest.find('\n');
    at_ = stop == std::string_view::npos ? size_ : at_ + stop + 1;
    if (stop == std::string_view::npos) continue;
    ++line_;
    return;
  }
}

bool parse_any_number(std::string_view text, double& value) {
  const bool negative = text.starts_with('-');
  const std::string_view digits = negative ? text.substr(1) : text;
  const bool none = digits == "NaN" || digits == "nan";
  if (none || digits == "Infinity" || digits == "inf") {
    value = none ? std::numeric_limits<double>::quiet_NaN() : std::numeric_limits<double>::infinity();
    if (negative) value = -value;
    return true;
  }
  if (digits.empty() || digits.front() < '0' || digits.front() > '9') return false;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace llmprof::json
