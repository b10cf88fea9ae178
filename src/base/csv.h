// Comma-separated tables as RFC 4180 has them: quoted fields, doubled quotes, line breaks inside quotes, LF or CRLF, an
// optional UTF-8 byte-order mark. Strict: every row has as many fields as the header, a quote stands only around a
// whole field, and sizes are bounded before anything is kept. Blank lines are skipped.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace llmprof {

struct CsvLimits {
  size_t max_bytes = size_t{64} << 20;
  size_t max_columns = 4096;
  size_t max_rows = 10'000'000;
};

struct CsvTable {
  std::vector<std::string> header;
  std::vector<std::vector<std::string>> rows;  // every row is as long as the header
  std::vector<size_t> lines;                   // the line of the file (1 is the first) on which each row starts

  // Index of the column called `name`, or nothing.
  std::optional<size_t> column(std::string_view name) const;
};

// `origin` names the file in errors. Errors: no header, a duplicate column name, a ragged row, a stray or unclosed
// quote, a limit reached; each says on which line.
Result<CsvTable> read_csv(std::string_view text, const std::string& origin, const CsvLimits& limits = {});

// Appends one field, quoted only if it must be, and made harmless, because tables are opened in spreadsheets and
// printed on terminals:
// - A text that a spreadsheet would take for a formula, one that begins with = + - @ (their wide forms too), a tab or a
//   line feed, gets an apostrophe before it. So does a text that begins with apostrophes and then one of these, so that
//   taking one of the apostrophes away before these gives every text back. Numbers stay numbers.
// - Characters that are harmful in text (base/printable.h) become \uXXXX or \UXXXXXXXX, a carriage return among them;
// line
//   feeds and tabs stay. A backslash that something like that follows is written \u005c. Bytes that are no UTF-8 become
//   U+FFFD, as in JSON.
void append_csv_field(std::string& out, std::string_view field);
// Appends a whole row with its line end.
void append_csv_row(std::string& out, const std::vector<std::string>& fields);

}  // namespace llmprof
