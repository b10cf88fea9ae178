// The scanner's numbers and strings, where a wrong digit would go unnoticed in a report.
#include <gtest/gtest.h>

#include <string>

#include "import/json_scan.h"

namespace llmprof::json {
namespace {

int64_t ns_of(std::string_view text) {
  int64_t ns = -1;
  EXPECT_TRUE(micros_to_ns(text, ns)) << text;
  return ns;
}

TEST(MicrosToNs, KeepsEveryNanosecond) {
  EXPECT_EQ(ns_of("4360716809603.189"), 4360716809603189);
  EXPECT_EQ(ns_of("1790857026000000.001"), 1790857026000000001);  // a double would lose the last digits
  EXPECT_EQ(ns_of("0.001"), 1);
  EXPECT_EQ(ns_of("12"), 12000);
  EXPECT_EQ(ns_of("12.5"), 12500);
  EXPECT_EQ(ns_of("12.50"), 12500);
  EXPECT_EQ(ns_of("-3.25"), -3250);
  EXPECT_EQ(ns_of("0"), 0);
}

TEST(MicrosToNs, RoundsBelowTheNanosecond) {
  EXPECT_EQ(ns_of("1.2344"), 1234);
  EXPECT_EQ(ns_of("1.2345"), 1235);
  EXPECT_EQ(ns_of("1.23449999"), 1234);
  EXPECT_EQ(ns_of("0.9996"), 1000);
  EXPECT_EQ(ns_of("1.8189894035458565e-12"), 0);
}

TEST(MicrosToNs, ReadsExponents) {
  EXPECT_EQ(ns_of("1e3"), 1000000);
  EXPECT_EQ(ns_of("1.5E+2"), 150000);
  EXPECT_EQ(ns_of("4.360716809603189e12"), 4360716809603189);
  EXPECT_EQ(ns_of("25e-3"), 25);
  EXPECT_EQ(ns_of("0e999"), 0);
}

TEST(MicrosToNs, RefusesWhatIsNoTime) {
  int64_t ns = 0;
  for (const char* text : {"", "NaN", "nan", "Infinity", "-Infinity", "null", "abc", "1.2.3", "1e", "1e+", "--1", "-",
                           ".", "9223372036854775807", "1e30", "99999999999999999999", "0x10", "1 2"})
    EXPECT_FALSE(micros_to_ns(text, ns)) << text;
}

TEST(ParseInt, AcceptsWholeNumbersOnly) {
  int64_t value = 0;
  EXPECT_TRUE(parse_int("-42", value));
  EXPECT_EQ(value, -42);
  EXPECT_TRUE(parse_int("3.0", value));
  EXPECT_EQ(value, 3);
  EXPECT_FALSE(parse_int("3.5", value));
  EXPECT_FALSE(parse_int("", value));
  EXPECT_FALSE(parse_int("1e300", value));
  uint64_t big = 0;
  EXPECT_TRUE(parse_uint("18446744073709551615", big));
  EXPECT_EQ(big, UINT64_MAX);
}

TEST(Unescape, FollowsJson) {
  EXPECT_EQ(unescape(R"(a\"b\\c\/d\n)"), "a\"b\\c/d\n");
  EXPECT_EQ(unescape(R"(\u00e9\u20ac)"), "\xC3\xA9\xE2\x82\xAC");
  EXPECT_EQ(unescape(R"(\ud83d\ude00)"), "\xF0\x9F\x98\x80");
  EXPECT_EQ(unescape(R"(\ud83d!)"), "\xEF\xBF\xBD!");
  EXPECT_EQ(unescape(R"(\u12)"), "\\u12");
}

// Everything skip_value does, it does within a block: the bytes behind it are zero.
Outcome skip(std::string text, size_t& used) {
  const size_t size = text.size();
  text.append(kScanPadding, '\0');
  const char* p = text.data();
  const Outcome outcome = skip_value(p, text.data() + size);
  used = static_cast<size_t>(p - text.data());
  return outcome;
}

TEST(SkipValue, TellsIncompleteFromBad) {
  size_t used = 0;
  EXPECT_EQ(skip(R"([1, {"a": "]}"}, []] ,)", used), Outcome::kOk);
  EXPECT_EQ(used, 20U);
  EXPECT_EQ(skip(R"("text" )", used), Outcome::kOk);
  EXPECT_EQ(skip(R"([1, 2)", used), Outcome::kIncomplete);
  EXPECT_EQ(skip(R"("text)", used), Outcome::kIncomplete);
  EXPECT_EQ(skip(R"("text\)", used), Outcome::kIncomplete);
  EXPECT_EQ(skip("123", used), Outcome::kIncomplete);  // more digits may follow in the next block
  EXPECT_EQ(skip("]", used), Outcome::kBad);
  EXPECT_EQ(skip("\"line\nfeed\"", used), Outcome::kBad);
  EXPECT_EQ(skip(std::string(100000, '['), used), Outcome::kIncomplete);  // depth is a number, not a stack
}

}  // namespace
}  // namespace llmprof::json
