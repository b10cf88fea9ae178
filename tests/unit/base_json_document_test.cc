// JSON texts kept in a JsonDocument against what an independent reader (simdjson) makes of them, on real files, on what
// JSON allows and forbids, and on damaged copies of both.
#include <gtest/gtest.h>
#include <simdjson.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include "base/json_document.h"

namespace llmprof {
namespace {

namespace dom = simdjson::dom;

void expect_same(JsonValue own, dom::element other, const std::string& where) {
  switch (other.type()) {
    case dom::element_type::NULL_VALUE:
      EXPECT_TRUE(own.is_null()) << where;
      return;
    case dom::element_type::BOOL:
      EXPECT_EQ(own.boolean(), bool(other)) << where;
      return;
    case dom::element_type::INT64:
      EXPECT_EQ(own.integer(), int64_t(other)) << where;
      return;
    case dom::element_type::UINT64:
      EXPECT_EQ(own.natural(), uint64_t(other)) << where;
      return;
    case dom::element_type::DOUBLE:
      EXPECT_EQ(own.number(), double(other)) << where;
      return;
    case dom::element_type::STRING:
      EXPECT_EQ(own.text(), std::string_view(other)) << where;
      return;
    case dom::element_type::ARRAY: {
      const dom::array list = other;
      ASSERT_TRUE(own.is_array()) << where;
      ASSERT_EQ(own.size(), list.size()) << where;
      dom::array::iterator at = list.begin();
      for (const JsonValue entry : own.entries()) expect_same(entry, *at, where + "[]"), ++at;
      return;
    }
    case dom::element_type::OBJECT: {
      const dom::object object = other;
      ASSERT_TRUE(own.is_object()) << where;
      ASSERT_EQ(own.size(), object.size()) << where;
      dom::object::iterator at = object.begin();
      for (const JsonMember member : own.members()) {
        EXPECT_EQ(member.name, at.key()) << where;
        expect_same(member.value, at.value(), where + "." + std::string(member.name));
        ++at;
      }
    }
  }
}

// Both read it, and the same; or neither does.
bool compare(const std::string& text) {
  dom::parser parser;
  dom::element root;
  const bool other = parser.parse(text).get(root) == simdjson::SUCCESS;
  const Result<JsonDocument> own = JsonDocument::parse(text);
  EXPECT_EQ(own.has_value(), other) << text.substr(0, 400) << "\n" << (own ? "" : own.error().what);
  if (own && other) expect_same(own->root(), root, "");
  return own.has_value();
}

std::string file_text(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

TEST(JsonDocument, ReadsWhatTheStandardAllows) {
  for (const char* text : {"0",
                           "-0",
                           "1",
                           "-1",
                           "9223372036854775807",
                           "-9223372036854775808",
                           "9223372036854775808",
                           "18446744073709551615",
                           "0.5",
                           "-0.0",
                           "1e3",
                           "1E+3",
                           "1.25e-7",
                           "2.2250738585072011e-308",
                           "4.9e-324",
                           "1e-400",
                           "1.7976931348623157e308",
                           "123456789012345678901234567890.0",
                           "true",
                           "false",
                           "null",
                           "\"\"",
                           "[]",
                           "{}",
                           " [ 1 , 2 ] ",
                           "[[],[[]],{}]",
                           R"({"a":1,"b":[true,null,{"c":"d"}],"a":2})",
                           R"("\"\\\/\b\f\n\r\t")",
                           R"("\u0041\u00e9\u20AC\ud83d\ude00")",
                           "\"\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80\"",
                           R"("\u0000x")",
                           "\"\x7F\"",
                           "\t\r\n{\"x\":\n0}\n"})
    EXPECT_TRUE(compare(text)) << text;
}

TEST(JsonDocument, RefusesWhatItForbids) {
  for (const char* text : {"",
                           " ",
                           "01",
                           "-",
                           "+1",
                           ".5",
                           "1.",
                           "1e",
                           "1e+",
                           "0x1",
                           "1e999",
                           "-1e999",
                           "NaN",
                           "Infinity",
                           "tru",
                           "nul",
                           "True",
                           "\"",
                           "\"a",
                           "\"\\",
                           "\"\\x\"",
                           "\"\\u12\"",
                           "\"\\u12g4\"",
                           "\"\\ud800\"",
                           "\"\\ud800\\u0041\"",
                           "\"\\udc00\"",
                           "\"\n\"",
                           "\"\x01\"",
                           "\"\x80\"",
                           "\"\xC0\x80\"",
                           "\"\xE0\x80\x80\"",
                           "\"\xED\xA0\x80\"",
                           "\"\xF4\x90\x80\x80\"",
                           "\"\xF8\x88\x80\x80\x80\"",
                           "\"\xC3\"",
                           "[",
                           "[1",
                           "[1,",
                           "[1,]",
                           "[,1]",
                           "[1 2]",
                           "[1}",
                           "]",
                           "{",
                           "{\"a\"",
                           "{\"a\":",
                           "{\"a\":1",
                           "{\"a\":1,",
                           "{\"a\":1,}",
                           "{a:1}",
                           "{1:2}",
                           "{\"a\" 1}",
                           "{]",
                           "1 2",
                           "[] []",
                           "'a'",
                           "[1]x",
                           "// c\n1"})
    EXPECT_FALSE(compare(text)) << text;
  for (const std::string_view text :
       {std::string_view("2\0", 2), std::string_view("{\"a\":1}\0{", 9), std::string_view("[\0]", 3),
        std::string_view("\0", 1), std::string_view("\"\0\"", 3)})
    EXPECT_FALSE(compare(std::string(text))) << text.size();
}

TEST(JsonDocument, SaysWhatWasExpectedAndWhere) {
  const auto error = [](const char* text) {
    const Result<JsonDocument> document = JsonDocument::parse(text);
    return document ? std::string("none") : document.error().what;
  };
  EXPECT_EQ(error("{\"a\": 1\n \"b\": 2}"),
            "expected '}', found string literal while parsing object at line 2, column 4");
  EXPECT_EQ(error("{\"a\": [1, 2"), "expected ']', found end of input while parsing array at line 1, column 12");
  EXPECT_EQ(JsonDocument::parse(std::string_view("{}\0{", 4)).error().what,
            "expected JSON, found a byte of 0 at byte 2");
  EXPECT_EQ(error("[1e999]"), "number overflow parsing '1e999'");
  EXPECT_EQ(error("[NaN]"),
            "expected JSON, found invalid literal; last read: '[N' while parsing value at line 1, column 2");
}

TEST(JsonDocument, SkipsAByteOrderMarkAndLimitsNesting) {
  EXPECT_TRUE(JsonDocument::parse("\xEF\xBB\xBF[1]"));
  EXPECT_TRUE(JsonDocument::parse(std::string(kJsonDepthMax, '[') + std::string(kJsonDepthMax, ']')));
  EXPECT_FALSE(JsonDocument::parse(std::string(kJsonDepthMax + 1, '[') + std::string(kJsonDepthMax + 1, ']')));
  EXPECT_FALSE(JsonDocument::parse(std::string(1'000'000, '[')));
}

TEST(JsonDocument, GivesValuesOfTheAskedTypeOnly) {
  const Result<JsonDocument> document =
      JsonDocument::parse(R"({"i":-3,"n":18446744073709551615,"r":4096.0,"t":"x","b":true,"z":null,"l":[1,2],"i":4})");
  ASSERT_TRUE(document) << document.error().what;
  const JsonValue root = document->root();
  EXPECT_EQ(root["i"].integer(), -3);  // the first of two
  EXPECT_FALSE(root["i"].natural());
  EXPECT_EQ(root["i"].number(), -3.0);
  EXPECT_FALSE(root["n"].integer());
  EXPECT_EQ(root["n"].natural(), UINT64_MAX);
  EXPECT_FALSE(root["r"].integer());
  EXPECT_EQ(root["r"].number(), 4096.0);
  EXPECT_FALSE(root["t"].number());
  EXPECT_FALSE(root["b"].integer());
  EXPECT_FALSE(root.find("none"));
  EXPECT_TRUE(root.find("z"));
  EXPECT_TRUE(root["none"]["deeper"].is_null());
  EXPECT_EQ(root["t"]["x"].size(), 0U);
  int64_t kept = 7;
  EXPECT_FALSE(root["t"].read(kept));
  EXPECT_EQ(kept, 7);
  int64_t sum = 0;
  for (const JsonValue entry : root["l"].entries()) sum += entry.integer().value_or(100);
  EXPECT_EQ(sum, 3);
}

TEST(JsonDocument, AgreesWithAnotherReaderOnRealFilesAndDamagedOnes) {
  std::vector<std::string> texts;
  for (const char* folder : {LLMPROF_DATA "/models", LLMPROF_TEST_DATA "/fuzz/corpus/model_config",
                             LLMPROF_TEST_DATA "/fuzz/corpus/ceilings", LLMPROF_TEST_DATA "/fuzz/corpus/bench_results"})
    for (const std::filesystem::directory_entry& entry : std::filesystem::directory_iterator(folder))
      texts.push_back(file_text(entry.path()));
  ASSERT_GT(texts.size(), 40U);
  std::mt19937 random(1);  // fixed: a failure can be repeated
  size_t read = 0, refused = 0;
  for (const std::string& text : texts) {
    if (text.starts_with("\xEF\xBB\xBF")) continue;  // read here, refused there
    ++(compare(text) ? read : refused);
    for (int i = 0; i < 40 && !text.empty() && text.size() < 20'000; ++i) {
      std::string damaged = text;
      constexpr std::string_view kBytes = "\"\\{}[],:-+.eE0123456789tfnu \n\x01\x80\xC3\xED";
      const size_t at = random() % damaged.size();
      if (i % 4 == 0)
        damaged.resize(at);
      else if (i % 4 == 1)
        damaged.erase(at, 1);
      else
        damaged[at] = kBytes[random() % kBytes.size()];
      ++(compare(damaged) ? read : refused);
    }
  }
  EXPECT_GT(read, 100U);
  EXPECT_GT(refused, 100U);
}

}  // namespace
}  // namespace llmprof
