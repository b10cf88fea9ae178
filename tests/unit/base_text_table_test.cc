// Tables in the width that there is: which columns go, what is cut, what is said.
#include <gtest/gtest.h>

#include <sstream>

#include "base/text_table.h"

namespace llmprof {
namespace {

using Align = TextTable::Align;

TextStyle fitting(size_t width) {
  TextStyle style;
  style.fit = true;
  style.width = width;
  style.more = "ask";
  return style;
}

size_t widest(const std::string& text) {
  size_t width = 0;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) width = std::max(width, display_width(line));
  return width;
}

TextTable example() {
  TextTable table({{"name", Align::kLeft, 30},
                   {"calls", Align::kRight, 0, 3},
                   {"grid", Align::kRight, 0, 9},
                   {"total"},
                   {"share", Align::kRight, 0, 1},
                   {"bound", Align::kLeft, 0, 2}});
  table.add_row({"ampere_bf16_s16816gemm_bf16_128x64_ldg8", "12", "1024,1,1", "12.34 ms", "45.6 %", "memory"});
  table.add_rule();
  table.add_row({"all", "13", "-", "27.06 ms"});
  return table;
}

TEST(TextTable, WithoutAWidthNothingIsLeftOut) {
  EXPECT_EQ(example().render(),
            "  name                            calls      grid     total   share  bound\n"
            "  ampere_bf16_s16816gemm_bf16_1…     12  1024,1,1  12.34 ms  45.6 %  memory\n"
            "  ─────────────────────────────────────────────────────────────────────────\n"
            "  all                                13         -  27.06 ms\n");
}

TEST(TextTable, NamesGiveWayBeforeColumns) {
  const std::string text = example().render("  ", fitting(74));
  EXPECT_EQ(text,
            "  name                           calls      grid     total   share  bound\n"
            "  ampere_bf16_s16816gemm_bf16_…     12  1024,1,1  12.34 ms  45.6 %  memory\n"
            "  ────────────────────────────────────────────────────────────────────────\n"
            "  all                               13         -  27.06 ms\n");
}

TEST(TextTable, ColumnsGoInTheirOrder) {
  const std::pair<size_t, const char*> cases[] = {{64, "not shown: grid (ask)"},
                                                  {60, "not shown: calls, grid (ask)"},
                                                  {50, "not shown: calls, grid, bound (ask)"},
                                                  {40, "not shown: calls, grid, share, bound"}};
  for (const auto& [width, note] : cases) {
    const std::string text = example().render("  ", fitting(width));
    EXPECT_NE(text.find(note), std::string::npos) << width << "\n" << text;
    EXPECT_NE(text.find("12.34 ms"), std::string::npos) << text;  // never cut, never gone
    EXPECT_LE(widest(text), width) << text;
  }
}

TEST(TextTable, AColumnWithoutValuesGoesFirst) {
  TextTable table(
      {{"name", Align::kLeft}, {"often", Align::kRight, 0, 9}, {"unknown", Align::kRight, 0, 1}, {"total"}});
  table.add_row({"a_name_of_some_length", "1", "-", "10.00 ms"});
  const std::string text = table.render("  ", fitting(42));
  EXPECT_NE(text.find("not shown: unknown (ask)"), std::string::npos) << text;
}

TEST(TextTable, EveryWidthIsKept) {
  for (size_t width = 1; width < 120; ++width)
    EXPECT_LE(widest(example().render("  ", fitting(width))), std::max(width, size_t{31})) << width;
  for (size_t width = 40; width < 120; ++width)
    EXPECT_LE(widest(example().render("  ", fitting(width))), width) << example().render("  ", fitting(width));
}

TEST(TextTable, ProseIsBrokenNotCut) {
  TextTable table({{"key", Align::kLeft}, {"meaning", Align::kLeft, 0, 0, true}});
  table.add_row({"bad-number", "a number of the recording cannot be read, and the event is left out"});
  EXPECT_EQ(table.render("", fitting(40)),
            "key         meaning\n"
            "bad-number  a number of the recording\n"
            "            cannot be read, and the\n"
            "            event is left out\n");
}

TEST(Format, LessThanAllDoesNotReadLikeAll) {
  EXPECT_EQ(format_percent(0.9996), ">99.9 %");
  EXPECT_EQ(format_percent(0.9994), "99.9 %");
  EXPECT_EQ(format_percent(1), "100.0 %");
  EXPECT_EQ(format_percent(1 - 1e-15), "100.0 %") << "a sum of parts";
}

TEST(TextTable, AlignsWideAndCombiningCharacters) {
  TextTable table({{"n", Align::kLeft}, {"v"}});
  table.add_row({"大小", "1"});
  table.add_row({"e\u0301", "2"});
  EXPECT_EQ(table.render(""), "n     v\n大小  1\ne\u0301     2\n");
}

TEST(TextTable, CellsAreHarmless) {
  TextTable table({{"n", Align::kLeft}, {"v"}});
  table.add_row({"a\x1b[2J\u202E\nb", "1"});
  EXPECT_EQ(table.render(""), "n                  v\na\\x1b[2J\\u202e\\nb  1\n");
}

TEST(TextTable, AsciiOnly) {
  TextStyle style = fitting(26);
  style.charset = Charset::kAscii;
  TextTable table({{"name", Align::kLeft}, {"t"}});
  table.add_row({"größer als alles zuvor genannte", "1"});
  table.add_rule();
  const std::string text = table.render("", style) + example().render("", style);
  for (const char c : text) EXPECT_GE(c, 0) << text;
  EXPECT_NE(text.find("gr\\u00f6\\u00dfer"), std::string::npos) << text;
  EXPECT_NE(text.find("..."), std::string::npos) << text;
}

}  // namespace
}  // namespace llmprof
