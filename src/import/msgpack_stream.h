// MessagePack documents of any size, one behind another, read token by token as JsonStream reads JSON: the same tokens
// with the same texts, so that one reader takes either. Memory does not depend on the size of the input or on what it
// states of lengths: of a text only its beginning is kept, and nesting is bounded. Keys must be texts, as those of JSON
// are; binary data count as texts; extensions are refused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "import/json_stream.h"

namespace llmprof::msgpack {

// Whether the bytes begin as an array of MessagePack does. No text of JSON does, with a byte order mark or without.
bool begins_array(std::string_view head);

class MsgpackStream {
 public:
  using Token = json::JsonStream::Token;

  MsgpackStream(InputFile& input, size_t nesting_max);

  Token next();
  // Of the last key, text, number or word. Valid until next().
  std::string_view text() const { return text_; }
  size_t depth() const { return open_.size(); }
  std::string place() const;                             // where the last token begins: "byte 17", from 0
  std::string_view problem() const { return problem_; }  // behind Token::kBad

 private:
  struct Open {
    uint64_t left = 0;  // items to come; of a map keys and values
    bool map = false;
  };

  bool fill();  // false at the end of the input
  bool take(unsigned char& byte);
  bool take_number(size_t bytes, uint64_t& number);  // the highest byte first
  Token value(unsigned char type);
  Token sized(unsigned char type, size_t bytes);
  Token begin(bool map, uint64_t entries);
  Token text_of(uint64_t bytes);
  Token number_of(unsigned char type);
  Token plain(Token token, std::string text);
  Token bad(std::string problem);

  InputFile& input_;
  size_t nesting_max_;
  std::string buffer_;
  size_t at_ = 0, size_ = 0;
  uint64_t before_buffer_ = 0, token_at_ = 0;
  std::vector<Open> open_{};
  std::string text_{}, problem_{};
};

}  // namespace llmprof::msgpack
