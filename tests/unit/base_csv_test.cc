#include <gtest/gtest.h>

#include "base/csv.h"
#include "base/json_writer.h"

namespace llmprof {
namespace {

using Rows = std::vector<std::vector<std::string>>;

TEST(Csv, ReadsQuotedFieldsAndLineBreaksInsideThem) {
  const Result<CsvTable> table = read_csv("a,b\n1,\"x, \"\"y\"\"\nz\"\n,2\n", "t.csv");
  ASSERT_TRUE(table) << table.error().text();
  EXPECT_EQ(table->header, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(table->rows, (Rows{{"1", "x, \"y\"\nz"}, {"", "2"}}));
  EXPECT_EQ(table->lines, (std::vector<size_t>{2, 4}));
  EXPECT_EQ(table->column("b"), 1U);
  EXPECT_FALSE(table->column("c"));
}

TEST(Csv, ReadsWindowsLineEndsByteOrderMarkAndAMissingLastLineEnd) {
  const Result<CsvTable> table = read_csv(
      "\xEF\xBB\xBF"
      "a,b\r\n1,2\r\n\r\n3,",
      "t.csv");
  ASSERT_TRUE(table) << table.error().text();
  EXPECT_EQ(table->header[0], "a");
  EXPECT_EQ(table->rows, (Rows{{"1", "2"}, {"3", ""}}));
}

TEST(Csv, RejectsRaggedRowsAndSaysWhere) {
  const Result<CsvTable> longer = read_csv("a,b\n1,2\n1,2,3\n", "t.csv");
  ASSERT_FALSE(longer);
  EXPECT_NE(longer.error().text().find("expected 2 fields as in the header, found 3"), std::string::npos);
  EXPECT_NE(longer.error().text().find("t.csv, line 3"), std::string::npos);
  EXPECT_FALSE(read_csv("a,b\n1\n", "t.csv"));
}

TEST(Csv, RejectsStrayAndUnclosedQuotes) {
  EXPECT_FALSE(read_csv("a\nx\"y\n", "t.csv"));
  EXPECT_FALSE(read_csv("a\n\"x\"y\n", "t.csv"));
  const Result<CsvTable> open = read_csv("a\n\"x\n\n\n", "t.csv");
  ASSERT_FALSE(open);
  EXPECT_EQ(open.error().where, "t.csv, line 2");
}

TEST(Csv, RejectsEmptyTablesDuplicateColumnsAndWhatIsOverALimit) {
  EXPECT_FALSE(read_csv("", "t.csv"));
  EXPECT_FALSE(read_csv("\n\n", "t.csv"));
  EXPECT_FALSE(read_csv("a,a\n1,2\n", "t.csv"));
  CsvLimits limits;
  limits.max_rows = 2;
  EXPECT_TRUE(read_csv("a\n1\n2\n", "t.csv", limits));
  EXPECT_FALSE(read_csv("a\n1\n2\n3\n", "t.csv", limits));
  limits.max_columns = 2;
  EXPECT_FALSE(read_csv("a,b,c\n", "t.csv", limits));
  limits.max_bytes = 3;
  EXPECT_FALSE(read_csv("a,b\n", "t.csv", limits));
}

TEST(Csv, WritesWhatItReads) {
  const std::vector<std::string> fields = {"plain", "", "a,b", "say \"x\"", "two\nlines", "tab\tinside"};
  std::string text = "a,b,c,d,e,f\n";
  append_csv_row(text, fields);
  const Result<CsvTable> table = read_csv(text, "t.csv");
  ASSERT_TRUE(table) << table.error().text();
  EXPECT_EQ(table->rows, Rows{fields});
}

std::string field(std::string_view text) {
  std::string out;
  append_csv_field(out, text);
  return out;
}

// As docs/output.md says: escapes first, then one apostrophe before what would begin a formula.
std::string undone(std::string text) {
  const size_t at = text.find_first_not_of('\'');
  if (at != 0 && at != std::string::npos && std::string_view("=+-@\t\n").find(text[at]) != std::string_view::npos)
    text.erase(0, 1);
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text.compare(i, 2, "\\u") != 0) {
      out += text[i];
      continue;
    }
    const unsigned long code = std::stoul(text.substr(i + 2, 4), nullptr, 16);
    EXPECT_LT(code, 0x80U) << "the test undoes ASCII only";
    out += static_cast<char>(code);
    i += 5;
  }
  return out;
}

TEST(Csv, FormulasBecomeTextAndNumbersStayNumbers) {
  EXPECT_EQ(field("=cmd|' /C calc'!A0"), "'=cmd|' /C calc'!A0");
  EXPECT_EQ(field("=HYPERLINK(\"http://x\")"), "\"'=HYPERLINK(\"\"http://x\"\")\"");
  EXPECT_EQ(field("+1+1"), "'+1+1");
  EXPECT_EQ(field("-2+3"), "'-2+3");
  EXPECT_EQ(field("@SUM(1)"), "'@SUM(1)");
  EXPECT_EQ(field("\t=1"), "'\t=1");
  EXPECT_EQ(field("\n=1"), "\"'\n=1\"");
  EXPECT_EQ(field("\r=1"), "\\u000d=1");
  EXPECT_EQ(field("\uFF1D1"), "'\uFF1D1");
  for (const char* number : {"-1", "-0.5", "-1e-07", "0", "1e+20", "3.25"}) EXPECT_EQ(field(number), number);
  for (const char* text : {"a=b", "it's", "'quoted'", "a-b", "x@y"}) EXPECT_EQ(field(text), text);
}

TEST(Csv, ControlsAndDirectionMarksAreEscaped) {
  EXPECT_EQ(field("\x1b[31mred"), "\\u001b[31mred");
  EXPECT_EQ(field("\u202Egnp.exe"), "\\u202egnp.exe");
  EXPECT_EQ(field("\u009B1m"), "\\u009b1m");
  EXPECT_EQ(field("\U000E0041"), "\\U000e0041");
  EXPECT_EQ(field("\xFF"), "\uFFFD");
  EXPECT_EQ(field("größer"), "größer");
  EXPECT_EQ(field("a\\b \\u12 C:\\users"), "a\\b \\u12 C:\\users");  // no escape is taken for one
}

TEST(Csv, WhatIsMadeHarmlessCanBeUndone) {
  for (const std::string text : {"=1", "'=1", "''=1", "'", "''", "it's", "\r=1", "\x1b[0m", "\\u001b", "a\\u0041b",
                                 "\\\\u0041", "-5", "'-5", "-x"}) {
    const Result<CsvTable> table = read_csv("a\n" + field(text) + "\n", "t.csv");
    ASSERT_TRUE(table) << text;
    EXPECT_EQ(undone(table->rows[0][0]), text) << table->rows[0][0];
  }
}

TEST(Json, KeepsNamesAndIsHarmlessWherePrinted) {
  std::string out;
  append_json_string(out, "\x1b[31m \u202E \u009B \U000E0041 é 📦 \x7F");
  EXPECT_EQ(out, "\"\\u001b[31m \\u202e \\u009b \\udb40\\udc41 é 📦 \\u007f\"");
}

}  // namespace
}  // namespace llmprof
