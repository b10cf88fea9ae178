#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

#include "import/bounded_lines.h"

namespace llmprof {
namespace {

using Found = std::vector<std::tuple<std::string, bool, bool>>;  // text, too long, cut

Found lines_of(const std::string& text, size_t bytes_most) {
  Result<InputFile> input = InputFile::from_memory(text, "lines.txt");
  Found out;
  if (!input) return out;
  read_bounded_lines(*input, bytes_most, [&](const BoundedLine& line) {
    out.emplace_back(std::string(line.text), line.too_long, line.cut);
  });
  return out;
}

TEST(BoundedLines, LongerOnesKeepTheirFirstBytes) {
  EXPECT_EQ(lines_of("abc\n\nabcd\nabcde\nab\n", 4), (Found{{"abc", false, false},
                                                            {"", false, false},
                                                            {"abcd", false, false},
                                                            {"abcd", true, false},
                                                            {"ab", false, false}}));
}

TEST(BoundedLines, TheLastOneMayBeCut) {
  EXPECT_EQ(lines_of("ab\nabcd", 4), (Found{{"ab", false, false}, {"abcd", false, true}}));
  EXPECT_EQ(lines_of("abcde", 4), (Found{{"abcd", true, true}}));
}

// Longer than what is read at a time.
TEST(BoundedLines, AnyLengthIsOneLine) {
  const std::string text(200'000, 'x');
  EXPECT_EQ(lines_of(text + "\ny\n", 300'000), (Found{{text, false, false}, {"y", false, false}}));
  EXPECT_EQ(lines_of(text + "\ny\n", 10), (Found{{std::string(10, 'x'), true, false}, {"y", false, false}}));
}

}  // namespace
}  // namespace llmprof
