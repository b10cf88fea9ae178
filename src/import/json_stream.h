// JSON documents of any size, one behind another, read token by token. Memory does not depend on the size of the input:
// of a text only its beginning is kept, and nesting is bounded. Takes the bare NaN and Infinity that Python writes, and
// the nan and inf of C++.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/input_file.h"

namespace llmprof::json {

class JsonStream {
 public:
  enum class Token : uint8_t {
    kObject,
    kObjectEnd,
    kArray,
    kArrayEnd,
    kKey,
    kText,
    kNumber,  // NaN and Infinity too
    kWord,    // true, false, null
    kEnd,     // of the input, between two documents
    kCut,     // the input ends inside a document
    kBad      // no JSON; skip_line() may go on behind it
  };
  static constexpr size_t kTextMax = 4096;   // bytes of a text that are kept
  static constexpr size_t kNestingMax = 64;  // unless its user bounds it

  explicit JsonStream(InputFile& input, size_t nesting_max = kNestingMax)
      : input_(input), nesting_max_(nesting_max), buffer_(kBufferBytes, '\0') {}

  Token next();
  // Of the last key, text, number or word. Valid until next().
  std::string_view text() const { return text_; }
  bool text_was_cut() const { return text_cut_; }
  size_t depth() const { return open_.size(); }
  uint64_t line() const { return line_; }  // from 1
  std::string place() const { return "line " + std::to_string(line_); }
  std::string_view problem() const { return "no JSON"; }  // behind Token::kBad
  // Where the document that next() is in, or was in last, begins.
  uint64_t document_line() const { return document_line_; }
  // Leaves the document, and goes on in the next line.
  void skip_line();

 private:
  enum class Expect : uint8_t { kValue, kFirstValue, kFirstKey, kKey, kCommaOrEnd };
  static constexpr size_t kBufferBytes = 256 * 1024;
  static constexpr size_t kTokenMax = 64;

  bool fill();  // false at the end of the input
  bool at_end() { return at_ == size_ && !fill(); }
  bool skip_blanks();  // false at the end of the input
  Token begin(char bracket);
  Token end(char bracket);
  Token value();
  Token key();
  Token plain();
  bool read_text();
  void value_is_read() { expect_ = open_.empty() ? Expect::kValue : Expect::kCommaOrEnd; }
  Token ended() const { return open_.empty() ? Token::kEnd : Token::kCut; }

  InputFile& input_;
  size_t nesting_max_;
  std::string buffer_;
  size_t at_ = 0, size_ = 0;
  uint64_t line_ = 1, document_line_ = 1;
  std::vector<char> open_{};  // brackets
  Expect expect_ = Expect::kValue;
  std::string text_{};
  bool text_cut_ = false;
  bool input_ended_ = false;  // inside a text
};

// A number as JsonStream gives it: false for what is none. NaN and infinite values are numbers here.
bool parse_any_number(std::string_view text, double& value);

}  // namespace llmprof::json
