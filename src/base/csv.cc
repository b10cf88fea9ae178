#include "base/csv.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <unordered_set>

#include "base/printable.h"

namespace llmprof {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

// Reads fields and rows off `text`; knows nothing of headers.
class Scanner {
 public:
  Scanner(std::string_view text, const std::string& origin) : text_(text), origin_(origin) {}

  bool done() const { return at_ >= text_.size(); }
  size_t line() const { return line_; }
  std::string place() const { return fmt::format("{}, line {}", origin_, line_); }

  // One row, its line end consumed. A blank line gives no fields.
  Result<std::vector<std::string>> row(size_t max_columns) {
    std::vector<std::string> fields;
    if (end_of_line()) return fields;
    for (;;) {
      if (fields.size() == max_columns)
        return fail(fmt::format("a row has more than {} fields", max_columns), place(),
                    "check that this is a comma-separated table");
      std::string field;
      LLMPROF_CHECK(read_field(field));
      fields.push_back(std::move(field));
      if (done() || end_of_line()) return fields;
      ++at_;  // read_field stops at a comma, a line end or the end of the text
    }
  }

 private:
  // Consumes LF or CRLF.
  bool end_of_line() {
    if (done()) return false;
    if (text_[at_] == '\n') {
      ++at_;
    } else if (text_.substr(at_, 2) == "\r\n") {
      at_ += 2;
    } else {
      return false;
    }
    ++line_;
    return true;
  }
  bool at_separator() const {
    return done() || text_[at_] == ',' || text_[at_] == '\n' || text_.substr(at_, 2) == "\r\n";
  }

  Status read_field(std::string& field) {
    if (!done() && text_[at_] == '"') return read_quoted(field);
    const size_t start = at_;
    for (; !at_separator(); ++at_)
      if (text_[at_] == '"')
        return fail("a quote stands in the middle of an unquoted field", place(),
                    "put the whole field in quotes and double the quotes inside it");
    field.assign(text_.substr(start, at_ - start));
    return {};
  }

  Status read_quoted(std::string& field) {
    const std::string start = place();
    for (++at_; !done(); ++at_) {
      if (text_[at_] == '\n') ++line_;
      if (text_[at_] != '"') {
        field += text_[at_];
      } else if (at_ + 1 < text_.size() && text_[at_ + 1] == '"') {
        field += '"';
        ++at_;
      } else {
        ++at_;
        if (!at_separator())
          return fail("text follows the closing quote of a field", place(), "double the quotes inside a quoted field");
        return {};
      }
    }
    return fail("a quoted field is never closed", start, "the file may be cut off, or a quote may be missing");
  }

  std::string_view text_;
  const std::string& origin_;
  size_t at_ = 0;
  size_t line_ = 1;
};

}  // namespace

std::optional<size_t> CsvTable::column(std::string_view name) const {
  const std::vector<std::string>::const_iterator found = std::find(header.begin(), header.end(), name);
  if (found == header.end()) return std::nullopt;
  return static_cast<size_t>(found - header.begin());
}

Result<CsvTable> read_csv(std::string_view text, const std::string& origin, const CsvLimits& limits) {
  if (text.size() > limits.max_bytes)
    return fail(fmt::format("the table has {} bytes, more than the limit of {}", text.size(), limits.max_bytes),
                origin);
  if (text.substr(0, kByteOrderMark.size()) == kByteOrderMark) text.remove_prefix(kByteOrderMark.size());
  CsvTable table;
  Scanner scanner(text, origin);
  while (!scanner.done()) {
    const size_t line = scanner.line();
    LLMPROF_ASSIGN(std::vector<std::string> fields, scanner.row(limits.max_columns));
    if (fields.empty()) continue;
    if (table.header.empty()) {
      std::unordered_set<std::string_view> seen;
      for (const std::string& name : fields)
        if (!seen.insert(name).second)
          return fail(fmt::format("the column \"{}\" appears twice in the header", name), origin);
      table.header = std::move(fields);
      continue;
    }
    if (fields.size() != table.header.size())
      return fail(fmt::format("expected {} fields as in the header, found {}", table.header.size(), fields.size()),
                  fmt::format("{}, line {}", origin, line), "quote fields that hold commas; check for a cut-off line");
    if (table.rows.size() == limits.max_rows)
      return fail(fmt::format("the table has more than {} rows", limits.max_rows), origin);
    table.rows.push_back(std::move(fields));
    table.lines.push_back(line);
  }
  if (table.header.empty()) return fail("expected a header row, found an empty table", origin);
  return table;
}

namespace {

bool is_number(std::string_view field) {
  double value = 0;
  const std::from_chars_result got = std::from_chars(field.data(), field.data() + field.size(), value);
  return got.ec == std::errc() && got.ptr == field.data() + field.size();
}

// With what spreadsheets begin a formula, or what they pass over before one; the last four are the wide forms. A
// carriage return is escaped, and so begins nothing.
constexpr std::u32string_view kFormulaStarts = U"=+-@\t\n\uFF1D\uFF0B\uFF0D\uFF20";

bool looks_like_formula(std::string_view field) {
  const size_t at = field.find_first_not_of('\'');
  if (at == std::string_view::npos || is_number(field)) return false;
  const Glyph glyph = first_glyph(field.substr(at));
  return glyph.valid && kFormulaStarts.find(glyph.code) != std::u32string_view::npos;
}

// "\uXXXX" or "\UXXXXXXXX" at the start of a text.
bool looks_escaped(std::string_view text) {
  if (text.size() < 2 || text[0] != '\\' || (text[1] != 'u' && text[1] != 'U')) return false;
  const size_t digits = text[1] == 'u' ? 4 : 8;
  return text.size() >= 2 + digits &&
         text.substr(2, digits).find_first_not_of("0123456789abcdefABCDEF") == std::string_view::npos;
}

std::string harmless(std::string_view field) {
  std::string out;
  out.reserve(field.size() + 1);
  if (looks_like_formula(field)) out += '\'';
  while (!field.empty()) {
    const Glyph glyph = first_glyph(field);
    if (!glyph.valid) {
      out += "\xEF\xBF\xBD";
    } else if (glyph.code == '\n' || glyph.code == '\t' || (!is_harmful(glyph.code) && !looks_escaped(field))) {
      out += field.substr(0, glyph.bytes);
    } else {
      const uint32_t code = glyph.code;
      out += code < 0x10000 ? fmt::format("\\u{:04x}", code) : fmt::format("\\U{:08x}", code);
    }
    field.remove_prefix(glyph.bytes);
  }
  return out;
}

}  // namespace

void append_csv_field(std::string& out, std::string_view given) {
  const std::string field = harmless(given);
  if (field.find_first_of(",\"\r\n") == std::string::npos) {
    out += field;
    return;
  }
  out += '"';
  for (const char c : field) {
    if (c == '"') out += '"';
    out += c;
  }
  out += '"';
}

void append_csv_row(std::string& out, const std::vector<std::string>& fields) {
  for (size_t i = 0; i < fields.size(); ++i) {
    if (i != 0) out += ',';
    append_csv_field(out, fields[i]);
  }
  out += '\n';
}

}  // namespace llmprof
