// SQLite: one table per table of the trace.
#include <fmt/format.h>

#include "export/destination.h"
#include "export/formats.h"
#include "export/sqlite_file.h"
#include "export/sqlite_views.h"
#include "export/table_view.h"

namespace llmprof::exporting {
namespace {

// Raised when a table, a column or a view changes its meaning or goes away.
constexpr int kSqliteSchemaVersion = 1;
// "llmp", by which the file is known for what it is.
constexpr int kApplicationId = 0x6c6c6d70;

std::string_view sqlite_type(CellType type) {
  switch (type) {
    case CellType::kInteger:
      return "INTEGER";
    case CellType::kReal:
      return "REAL";
    case CellType::kText:
      return "TEXT";
  }
  return "";
}

std::string create_table(const TableView& table) {
  std::string sql = fmt::format("CREATE TABLE \"{}\" (\"row\" INTEGER PRIMARY KEY", table.name);
  if (!table.parallel_to.empty()) sql += fmt::format(" REFERENCES \"{}\"(\"row\")", table.parallel_to);
  for (const ColumnView& column : table.columns) {
    sql += fmt::format(", \"{}\" {}", column.name, sqlite_type(column.type));
    if (column.always) sql += " NOT NULL";
    if (!column.target.empty()) sql += fmt::format(" REFERENCES \"{}\"(\"row\")", column.target);
  }
  return sql + ")";
}

std::string insert_into(const TableView& table) {
  std::string sql = fmt::format("INSERT INTO \"{}\" VALUES (?", table.name);
  for (size_t i = 0; i < table.columns.size(); ++i) sql += ",?";
  return sql + ")";
}

Status fill(SqliteFile& file, const TableView& table) {
  LLMPROF_CHECK(file.run(create_table(table)));
  LLMPROF_CHECK(file.prepare(insert_into(table)));
  // Texts that need repair must live until the row is inserted.
  std::vector<std::string> kept(table.columns.size());
  for (size_t row = 0; row < table.rows; ++row) {
    file.bind(1, static_cast<int64_t>(row));
    for (size_t i = 0; i < table.columns.size(); ++i) {
      const Cell cell = table.cell(table.columns[i], row);
      const std::string_view* const text = std::get_if<std::string_view>(&cell);
      file.bind(static_cast<int>(i) + 2, text != nullptr ? Cell(as_utf8(*text, kept[i])) : cell);
    }
    LLMPROF_CHECK(file.insert());
  }
  return {};
}

// `columns`: what every column is, for those who have the file and not the documentation.
Status describe_columns(SqliteFile& database, const std::vector<TableView>& tables) {
  LLMPROF_CHECK(database.run(
      "CREATE TABLE \"columns\" (\"table\" TEXT NOT NULL, \"column\" TEXT NOT NULL, \"unit\" TEXT NOT NULL, "
      "\"points_at\" TEXT, PRIMARY KEY (\"table\", \"column\")) WITHOUT ROWID"));
  std::string sql = "INSERT INTO \"columns\" VALUES ";
  bool first = true;
  // Declared names: letters, digits and underscores.
  const auto add = [&](std::string_view table, std::string_view column, std::string_view unit,
                       std::string_view target) {
    sql += fmt::format("{}('{}','{}','{}',{})", first ? "" : ",", table, column, unit,
                       target.empty() ? "NULL" : fmt::format("'{}'", target));
    first = false;
  };
  for (const TableView& table : tables) {
    add(table.name, "row", "", table.parallel_to);
    for (const ColumnView& column : table.columns) add(table.name, column.name, column.unit, column.target);
  }
  return database.run(sql);
}

}  // namespace

Status write_sqlite(const Trace& trace, const std::string& path) {
  LLMPROF_ASSIGN(Destination destination, Destination::for_file(path, true));
  const ExportedTables tables(trace);
  SqliteFile database(path);
  LLMPROF_CHECK(database.begin(destination.part()));
  for (const TableView& table : tables.views()) LLMPROF_CHECK(fill(database, table));
  LLMPROF_CHECK(describe_columns(database, tables.views()));
  for (const SqliteView& view : sqlite_views())
    LLMPROF_CHECK(database.run(fmt::format("CREATE VIEW \"{}\" AS{}", view.name, view.select)));
  LLMPROF_CHECK(database.run(
      fmt::format("PRAGMA application_id={}; PRAGMA user_version={}", kApplicationId, kSqliteSchemaVersion)));
  LLMPROF_CHECK(database.commit());
  return destination.take_name();
}

}  // namespace llmprof::exporting
