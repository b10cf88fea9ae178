// Every table of a trace as rows of cells, for formats that write tables: CSV, JSON and SQLite say the same because
// they walk the same views. The first column of each, `row`, is the number of the row, which other tables point at; it
// is not among the columns here.
#pragma once

#include <memory>
#include <string_view>
#include <variant>
#include <vector>

#include "trace/trace.h"

namespace llmprof::exporting {

// std::monostate: not known, which kNoRow and NaN stand for. The other ways of saying so (-1, 0, an empty text) are in
// the sentences of the columns and stay as they are.
using Cell = std::variant<std::monostate, int64_t, uint64_t, double, std::string_view>;

enum class CellType : uint8_t { kInteger, kReal, kText };

struct ColumnView {
  std::string_view name, unit;
  CellType type;
  std::string_view target;  // the table whose rows it points at, or empty
  bool always;              // never std::monostate
  const void* values;
  Cell (*get)(const void* values, size_t row, const StringPool& strings);
};

struct TableView {
  std::string_view name;
  std::string_view parallel_to;  // the table whose row i its row i belongs to, or empty
  size_t rows;
  std::vector<ColumnView> columns;
  const StringPool* strings;

  Cell cell(const ColumnView& column, size_t row) const { return column.get(column.values, row, *strings); }
};

// The declared tables in their order, and before them `facts`, `windows` and `diagnostics`: what a Trace has beside its
// tables. Views are good as long as this and the trace are.
class ExportedTables {
 public:
  explicit ExportedTables(const Trace& trace);
  ~ExportedTables();
  ExportedTables(const ExportedTables&) = delete;
  ExportedTables& operator=(const ExportedTables&) = delete;
  const std::vector<TableView>& views() const { return views_; }

 private:
  struct Extra;
  std::unique_ptr<Extra> extra_;
  std::vector<TableView> views_;
};

// The text with U+FFFD for bytes that are no UTF-8; `kept` holds it where it differs.
std::string_view as_utf8(std::string_view text, std::string& kept);

}  // namespace llmprof::exporting
