#include <gtest/gtest.h>

#include "base/csv.h"

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
  const std::vector<std::string> fields = {"plain", "", "a,b", "say \"x\"", "two\nlines", "cr\r"};
  std::string text = "a,b,c,d,e,f\n";
  append_csv_row(text, fields);
  const Result<CsvTable> table = read_csv(text, "t.csv");
  ASSERT_TRUE(table) << table.error().text();
  EXPECT_EQ(table->rows, Rows{fields});
}

}  // namespace
}  // namespace llmprof
