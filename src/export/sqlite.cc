// SQLite: one table per table of the trace, written in one transaction without a journal, since an unfinished file is
// given up anyway (destination.h).
#include <fmt/format.h>
#include <sqlite3.h>

#include "export/destination.h"
#include "export/formats.h"
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

class Database {
 public:
  explicit Database(std::string shown) : shown_(std::move(shown)) {}
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;
  ~Database() {
    sqlite3_finalize(statement_);
    sqlite3_close(db_);
  }

  Status open(const std::string& part) {
    const int code =
        sqlite3_open_v2(part.c_str(), &db_, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, nullptr);
    return code == SQLITE_OK ? Status() : failed();
  }

  Status run(const std::string& sql) {
    return sqlite3_exec(db_, sql.c_str(), nullptr, nullptr, nullptr) == SQLITE_OK ? Status() : failed();
  }

  Status fill(const TableView& table) {
    LLMPROF_CHECK(run(create_table(table)));
    LLMPROF_CHECK(prepare(insert_into(table)));
    // Texts that need repair must live until the row is inserted.
    std::vector<std::string> kept(table.columns.size());
    for (size_t row = 0; row < table.rows; ++row) {
      sqlite3_bind_int64(statement_, 1, static_cast<sqlite3_int64>(row));
      for (size_t i = 0; i < table.columns.size(); ++i)
        bind(static_cast<int>(i) + 2, table.cell(table.columns[i], row), kept[i]);
      if (sqlite3_step(statement_) != SQLITE_DONE) return failed();
      sqlite3_reset(statement_);
    }
    return {};
  }

  Status close() {
    sqlite3_finalize(statement_);
    statement_ = nullptr;
    if (sqlite3_close(db_) != SQLITE_OK) return failed();
    db_ = nullptr;
    return {};
  }

 private:
  Status prepare(const std::string& sql) {
    sqlite3_finalize(statement_);
    statement_ = nullptr;
    const int code = sqlite3_prepare_v2(db_, sql.c_str(), static_cast<int>(sql.size()), &statement_, nullptr);
    return code == SQLITE_OK ? Status() : failed();
  }

  // SQLite's integers have 64 bits and a sign: what is above 2^63 keeps its bits.
  void bind(int at, const Cell& cell, std::string& kept) {
    if (const int64_t* number = std::get_if<int64_t>(&cell)) {
      sqlite3_bind_int64(statement_, at, *number);
    } else if (const uint64_t* natural = std::get_if<uint64_t>(&cell)) {
      sqlite3_bind_int64(statement_, at, static_cast<sqlite3_int64>(*natural));
    } else if (const double* real = std::get_if<double>(&cell)) {
      sqlite3_bind_double(statement_, at, *real);
    } else if (const std::string_view* text = std::get_if<std::string_view>(&cell)) {
      const std::string_view valid = as_utf8(*text, kept);
      // A null pointer would mean NULL.
      sqlite3_bind_text64(statement_, at, valid.empty() ? "" : valid.data(), valid.size(), SQLITE_STATIC, SQLITE_UTF8);
    } else {
      sqlite3_bind_null(statement_, at);
    }
  }

  tl::unexpected<Error> failed() const {
    return cannot_write(shown_, db_ == nullptr ? "no memory" : sqlite3_errmsg(db_));
  }

  std::string shown_;
  sqlite3* db_ = nullptr;
  sqlite3_stmt* statement_ = nullptr;
};

// `columns`: what every column is, for those who have the file and not the documentation.
Status describe_columns(Database& database, const std::vector<TableView>& tables) {
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
  Database database(path);
  LLMPROF_CHECK(database.open(destination.part()));
  LLMPROF_CHECK(database.run("PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; PRAGMA locking_mode=EXCLUSIVE; BEGIN"));
  for (const TableView& table : tables.views()) LLMPROF_CHECK(database.fill(table));
  LLMPROF_CHECK(describe_columns(database, tables.views()));
  for (const SqliteView& view : sqlite_views())
    LLMPROF_CHECK(database.run(fmt::format("CREATE VIEW \"{}\" AS{}", view.name, view.select)));
  LLMPROF_CHECK(database.run(
      fmt::format("PRAGMA application_id={}; PRAGMA user_version={}; COMMIT", kApplicationId, kSqliteSchemaVersion)));
  LLMPROF_CHECK(database.close());
  return destination.take_name();
}

}  // namespace llmprof::exporting
