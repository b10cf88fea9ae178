#include "import/msgpack_stream.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

namespace llmprof::msgpack {
namespace {

constexpr size_t kMsgpackBufferBytes = 256 * 1024;

// First bytes of values (github.com/msgpack/msgpack/blob/master/spec.md). Those below kFixMap are numbers, those from
// kNegative on too.
enum Type : unsigned char {
  kFixMap = 0x80,
  kFixArray = 0x90,
  kFixText = 0xa0,
  kNil = 0xc0,
  kFalse = 0xc2,
  kTrue = 0xc3,
  kBinary8 = 0xc4,
  kBinary32 = 0xc6,
  kFloat32 = 0xca,
  kFloat64 = 0xcb,
  kUnsigned8 = 0xcc,
  kUnsigned64 = 0xcf,
  kSigned8 = 0xd0,
  kSigned64 = 0xd3,
  kText8 = 0xd9,
  kText32 = 0xdb,
  kArray16 = 0xdc,
  kArray32 = 0xdd,
  kMap16 = 0xde,
  kMap32 = 0xdf,
  kNegative = 0xe0,
};

bool within(unsigned char type, unsigned char first, unsigned char last) { return type >= first && type <= last; }

bool is_text_type(unsigned char type) {
  return within(type, kFixText, kNil - 1) || within(type, kText8, kText32) || within(type, kBinary8, kBinary32);
}

}  // namespace

bool begins_array(std::string_view head) {
  if (head.empty()) return false;
  const unsigned char type = static_cast<unsigned char>(head.front());
  return within(type, kFixArray, kFixText - 1) || type == kArray16 || type == kArray32;
}

MsgpackStream::MsgpackStream(InputFile& input, size_t nesting_max)
    : input_(input), nesting_max_(nesting_max), buffer_(kMsgpackBufferBytes, '\0') {}

std::string MsgpackStream::place() const { return fmt::format("byte {}", token_at_); }

bool MsgpackStream::fill() {
  before_buffer_ += size_;
  at_ = 0;
  size_ = input_.read(buffer_.data(), buffer_.size());
  return size_ > 0;
}

bool MsgpackStream::take(unsigned char& byte) {
  if (at_ == size_ && !fill()) return false;
  byte = static_cast<unsigned char>(buffer_[at_++]);
  return true;
}

bool MsgpackStream::take_number(size_t bytes, uint64_t& number) {
  number = 0;
  for (size_t i = 0; i < bytes; ++i) {
    unsigned char byte = 0;
    if (!take(byte)) return false;
    number = number << 8 | byte;
  }
  return true;
}

MsgpackStream::Token MsgpackStream::next() {
  token_at_ = before_buffer_ + at_;
  const bool inside = !open_.empty();
  if (inside && open_.back().left == 0) {
    const bool map = open_.back().map;
    open_.pop_back();
    return map ? Token::kObjectEnd : Token::kArrayEnd;
  }
  unsigned char type = 0;
  if (!take(type)) return inside ? Token::kCut : Token::kEnd;
  bool key = false;
  if (inside) {
    key = open_.back().map && open_.back().left % 2 == 0;
    --open_.back().left;
  }
  if (!key) return value(type);
  if (!is_text_type(type)) return bad(fmt::format("a key of type {:#04x}, which is no text", type));
  const Token token = value(type);
  return token == Token::kText ? Token::kKey : token;
}

MsgpackStream::Token MsgpackStream::value(unsigned char type) {
  if (type < kFixMap || type >= kNegative || within(type, kFloat32, kSigned64)) return number_of(type);
  if (type < kFixArray) return begin(true, type - kFixMap);
  if (type < kFixText) return begin(false, type - kFixArray);
  if (type < kNil) return text_of(type - kFixText);
  if (type == kNil) return plain(Token::kWord, "null");
  if (type == kFalse || type == kTrue) return plain(Token::kWord, type == kTrue ? "true" : "false");
  if (within(type, kBinary8, kBinary32)) return sized(type, size_t{1} << (type - kBinary8));
  if (within(type, kText8, kText32)) return sized(type, size_t{1} << (type - kText8));
  if (type >= kArray16) return sized(type, type == kArray16 || type == kMap16 ? 2 : 4);
  return bad(fmt::format("a value of type {:#04x}, {}", type,
                         type < kBinary8 ? "which stands for nothing" : "an extension, which is not read"));
}

// What states its length in so many bytes behind its type.
MsgpackStream::Token MsgpackStream::sized(unsigned char type, size_t bytes) {
  uint64_t length = 0;
  if (!take_number(bytes, length)) return Token::kCut;
  return is_text_type(type) ? text_of(length) : begin(type >= kMap16, length);
}

MsgpackStream::Token MsgpackStream::begin(bool map, uint64_t entries) {
  if (open_.size() == nesting_max_) return bad(fmt::format("nested deeper than {}", nesting_max_));
  open_.push_back({map ? 2 * entries : entries, map});
  return map ? Token::kObject : Token::kArray;
}

MsgpackStream::Token MsgpackStream::text_of(uint64_t bytes) {
  text_.clear();
  while (bytes > 0) {
    if (at_ == size_ && !fill()) return Token::kCut;
    const size_t here = static_cast<size_t>(std::min<uint64_t>(bytes, size_ - at_));
    text_.append(buffer_, at_, std::min(here, json::JsonStream::kTextMax - text_.size()));
    at_ += here;
    bytes -= here;
  }
  return Token::kText;
}

MsgpackStream::Token MsgpackStream::number_of(unsigned char type) {
  if (type < kFixMap) return plain(Token::kNumber, std::to_string(type));
  if (type >= kNegative) return plain(Token::kNumber, std::to_string(int{type} - 256));
  const bool is_float = type == kFloat32 || type == kFloat64;
  const size_t bytes = is_float              ? size_t{type == kFloat32 ? 4U : 8U}
                       : type <= kUnsigned64 ? size_t{1} << (type - kUnsigned8)
                                             : size_t{1} << (type - kSigned8);
  uint64_t bits = 0;
  if (!take_number(bytes, bits)) return Token::kCut;
  // The shortest text that gives the same double again.
  if (type == kFloat32)
    return plain(Token::kNumber, fmt::format("{}", double{std::bit_cast<float>(static_cast<uint32_t>(bits))}));
  if (type == kFloat64) return plain(Token::kNumber, fmt::format("{}", std::bit_cast<double>(bits)));
  if (type <= kUnsigned64) return plain(Token::kNumber, std::to_string(bits));
  const uint64_t unused = 64 - 8 * bytes;  // the sign goes up
  return plain(Token::kNumber, std::to_string(static_cast<int64_t>(bits << unused) >> unused));
}

MsgpackStream::Token MsgpackStream::plain(Token token, std::string text) {
  text_ = std::move(text);
  return token;
}

MsgpackStream::Token MsgpackStream::bad(std::string problem) {
  problem_ = std::move(problem);
  return Token::kBad;
}

}  // namespace llmprof::msgpack
