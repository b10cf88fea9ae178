// Every type of MessagePack's specification as its bytes, and what is cut, too long, too deep or of no use.
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "import/msgpack_stream.h"

namespace llmprof {
namespace {

using msgpack::MsgpackStream;
using Token = MsgpackStream::Token;
using namespace std::string_view_literals;

struct ReadToken {
  Token token;
  std::string text;
};

// All tokens up to the end, or to where it cannot be read further.
std::vector<ReadToken> tokens_of(std::string_view bytes, std::string* place = nullptr, std::string* problem = nullptr) {
  std::vector<ReadToken> out;
  Result<InputFile> input = InputFile::from_memory(bytes, "x");
  EXPECT_TRUE(input);
  MsgpackStream stream(*input, 8);
  for (;;) {
    const Token token = stream.next();
    const bool has_text =
        token == Token::kKey || token == Token::kText || token == Token::kNumber || token == Token::kWord;
    out.push_back({token, has_text ? std::string(stream.text()) : std::string()});
    if (token != Token::kEnd && token != Token::kCut && token != Token::kBad) continue;
    if (place != nullptr) *place = stream.place();
    if (problem != nullptr) *problem = std::string(stream.problem());
    return out;
  }
}

void expect_one(std::string_view bytes, Token token, std::string_view text) {
  const std::vector<ReadToken> got = tokens_of(bytes);
  ASSERT_EQ(got.size(), 2U) << text;
  EXPECT_EQ(got[0].token, token) << text;
  EXPECT_EQ(got[0].text, text);
  EXPECT_EQ(got[1].token, Token::kEnd) << text;
}

TEST(MsgpackStream, ReadsNumbersOfEveryWidth) {
  struct Case {
    std::string_view bytes, text;
  };
  for (const Case& one : std::vector<Case>{{"\x00"sv, "0"},
                                           {"\x7f"sv, "127"},
                                           {"\xe0"sv, "-32"},
                                           {"\xff"sv, "-1"},
                                           {"\xcc\xff"sv, "255"},
                                           {"\xcd\xff\xfe"sv, "65534"},
                                           {"\xce\xff\xff\xff\xfe"sv, "4294967294"},
                                           {"\xcf\xff\xff\xff\xff\xff\xff\xff\xff"sv, "18446744073709551615"},
                                           {"\xd0\x80"sv, "-128"},
                                           {"\xd0\x7f"sv, "127"},
                                           {"\xd1\x80\x00"sv, "-32768"},
                                           {"\xd2\x80\x00\x00\x00"sv, "-2147483648"},
                                           {"\xd3\x80\x00\x00\x00\x00\x00\x00\x00"sv, "-9223372036854775808"},
                                           {"\xd3\x00\x00\x00\x00\x00\x00\x00\x05"sv, "5"},
                                           {"\xca\x3f\xc0\x00\x00"sv, "1.5"},
                                           {"\xcb\x3f\xb9\x99\x99\x99\x99\x99\x9a"sv, "0.1"},
                                           {"\xcb\xff\xf0\x00\x00\x00\x00\x00\x00"sv, "-inf"}})
    expect_one(one.bytes, Token::kNumber, one.text);
}

TEST(MsgpackStream, ReadsTextsAndWords) {
  expect_one("\xc0"sv, Token::kWord, "null");
  expect_one("\xc2"sv, Token::kWord, "false");
  expect_one("\xc3"sv, Token::kWord, "true");
  expect_one("\xa0"sv, Token::kText, "");
  expect_one("\xa2he"sv, Token::kText, "he");
  expect_one("\xd9\x03six"sv, Token::kText, "six");
  expect_one("\xda\x00\x03six"sv, Token::kText, "six");
  expect_one("\xdb\x00\x00\x00\x03six"sv, Token::kText, "six");
  expect_one("\xc4\x02\x00\x01"sv, Token::kText, "\x00\x01"sv);
  // Of a long one the beginning is kept, and what is behind it is read.
  const std::string text(300'000, 'k');
  const std::string bytes = std::string("\x92\xdb\x00\x04\x93\xe0"sv) + text + "\x05";
  const std::vector<ReadToken> got = tokens_of(bytes);
  ASSERT_EQ(got.size(), 5U);
  EXPECT_EQ(got[1].text, text.substr(0, json::JsonStream::kTextMax));
  EXPECT_EQ(got[2].text, "5");
}

TEST(MsgpackStream, ReadsListsAndMaps) {
  for (const std::string_view map : {"\x82"sv, "\xde\x00\x02"sv, "\xdf\x00\x00\x00\x02"sv})
    for (const std::string_view list : {"\x92"sv, "\xdc\x00\x02"sv, "\xdd\x00\x00\x00\x02"sv}) {
      std::string text;
      for (const ReadToken& one : tokens_of(std::string(map) +
                                            "\xa1"
                                            "a" +
                                            std::string(list) +
                                            "\x01\x80\xa1"
                                            "b"
                                            "\x90"
                                            "\x07"))
        text += std::to_string(static_cast<int>(one.token)) + one.text + " ";
      const auto number = [](Token token) { return std::to_string(static_cast<int>(token)); };
      EXPECT_EQ(text, number(Token::kObject) + " " + number(Token::kKey) + "a " + number(Token::kArray) + " " +
                          number(Token::kNumber) + "1 " + number(Token::kObject) + " " + number(Token::kObjectEnd) +
                          " " + number(Token::kArrayEnd) + " " + number(Token::kKey) + "b " + number(Token::kArray) +
                          " " + number(Token::kArrayEnd) + " " + number(Token::kObjectEnd) + " " +
                          number(Token::kNumber) + "7 " + number(Token::kEnd) + " ");
    }
}

TEST(MsgpackStream, SaysWhereItCannotBeRead) {
  struct Case {
    std::string_view bytes, place, problem;
  };
  for (const Case& one : std::vector<Case>{{"\x92\x05\xc1"sv, "byte 2", "0xc1, which stands for nothing"},
                                           {"\x91\xc7\x01\x05\x00"sv, "byte 1", "0xc7, an extension"},
                                           {"\x91\xd8\x00"sv, "byte 1", "0xd8, an extension"},
                                           {"\x81\x05\x05"sv, "byte 1", "a key of type 0x05, which is no text"},
                                           {"\x81\xc0\x05"sv, "byte 1", "a key of type 0xc0"},
                                           {"\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91"sv, "byte 8", "deeper than 8"}}) {
    std::string place, problem;
    EXPECT_EQ(tokens_of(one.bytes, &place, &problem).back().token, Token::kBad) << one.problem;
    EXPECT_EQ(place, one.place) << one.problem;
    EXPECT_NE(problem.find(one.problem), std::string::npos) << problem;
  }
}

// No length is believed before the bytes are there.
TEST(MsgpackStream, EndsWhereTheInputDoes) {
  for (const std::string_view bytes : {"\xdd\xff\xff\xff\xff"sv, "\xdf\xff\xff\xff\xff"sv,
                                       "\xdb\xff\xff\xff\xff"
                                       "abc"sv,
                                       "\xc6\xff\xff\xff\xff"sv, "\xdc\xff"sv, "\xcf\x01\x02"sv, "\xcb\x01"sv,
                                       "\x81\xa3"
                                       "ab"sv,
                                       "\x81\xa1"
                                       "a"sv,
                                       "\x92\x01"sv})
    EXPECT_EQ(tokens_of(bytes).back().token, Token::kCut) << bytes.size();
}

TEST(MsgpackStream, KnowsTheBeginningOfAList) {
  for (const std::string_view bytes : {"\x92\x83"sv, "\x90"sv, "\x9f"sv, "\xdc\x00\x02"sv, "\xdd"sv})
    EXPECT_TRUE(msgpack::begins_array(bytes));
  for (const std::string_view bytes : {""sv, "[{"sv, "\xef\xbb\xbf["sv, "\x83"sv,
                                       "\xa1"
                                       "a"sv,
                                       " "sv, "\xde\x00\x01"sv})
    EXPECT_FALSE(msgpack::begins_array(bytes));
}

}  // namespace
}  // namespace llmprof
