// Reading an SQLite file that nobody vouches for: opened read-only and immutable, nothing of its schema is run. Only
// plain tables are read (no view, virtual table or generated column), whole, by the names that the caller knows and in
// the order of their rows; what a damaged file could give more often than it holds is bounded by its size.
#pragma once

#include <sqlite3.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/input_file.h"
#include "base/result.h"

namespace llmprof::nsys {

// One connection; used by one thread at a time.
class Connection {
 public:
  Connection() = default;
  ~Connection() { sqlite3_close(db_); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  sqlite3* get() const { return db_; }
  std::string error() const { return db_ == nullptr ? "no memory" : sqlite3_errmsg(db_); }

 private:
  friend class Database;
  sqlite3* db_ = nullptr;
};

struct TableInfo {
  std::string name;
  std::vector<std::string> columns;  // that hold values: no hidden or generated ones
  int64_t first_row = 0, last_row = -1;
  // Rows are numbered through, as exports are written, so that parts of the table may be asked for by number.
  bool numbered = false;
  // More rows than this do not fit into the file.
  int64_t rows_max = 0;

  bool has_rows() const { return last_row >= first_row; }
  // How many there are if none was deleted; 0 where their numbers do not tell.
  int64_t row_count() const { return has_rows() && numbered ? last_row - first_row + 1 : 0; }
  // As SQLite compares names: without case.
  bool is_named(std::string_view other) const;
  bool has(std::string_view column) const;
};

class Database {
 public:
  // The file of `input` itself, or what it holds, unpacked into memory. `input` must outlive the object only while it
  // is opened. Errors: not readable as an SQLite file.
  static Result<std::unique_ptr<Database>> open(InputFile& input);
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  const std::vector<TableInfo>& tables() const { return tables_; }
  // Null if there is none of that name (as SQLite compares names: without case).
  const TableInfo* find(std::string_view name) const;
  // Views and the like, which are not read.
  const std::vector<std::string>& other_names() const { return others_; }
  uint64_t bytes() const { return bytes_; }
  // Why the list of tables may lack some; empty if it does not.
  const std::string& schema_damage() const { return schema_damage_; }
  // The file is shorter than its header says.
  bool is_cut() const { return cut_; }

  std::unique_ptr<Connection> take();
  void give_back(std::unique_ptr<Connection> connection);

 private:
  Database() = default;
  Status connect(Connection& connection);
  Status list_tables(Connection& connection);
  Status describe(Connection& connection, TableInfo& table);

  std::string name_;  // of the file, for messages
  std::string path_;  // empty: in memory_
  std::string memory_;
  uint64_t bytes_ = 0;
  bool cut_ = false;
  std::vector<TableInfo> tables_;
  std::vector<std::string> others_;
  std::string schema_damage_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Connection>> idle_;
};

// A part of a table: rows numbered from `first` to `last`, at most `most`.
struct RowRange {
  int64_t first = INT64_MIN;
  int64_t last = INT64_MAX;
  int64_t most = 0;
};

// Steps through rows. Column i is the i-th of `columns`; those that the table lacks read as absent.
class Rows {
 public:
  Rows(Connection& connection, const TableInfo& table, const std::vector<std::string_view>& columns,
       const RowRange& range);
  ~Rows() { sqlite3_finalize(statement_); }
  Rows(const Rows&) = delete;
  Rows& operator=(const Rows&) = delete;

  // False at the end; then error() says why it ended before the table did, if so.
  bool next() {
    if (statement_ == nullptr) return false;
    const int code = sqlite3_step(statement_);
    if (code == SQLITE_ROW && read_ < most_) {
      ++read_;
      return true;
    }
    end(code);
    return false;
  }
  int64_t read() const { return read_; }
  const std::string& error() const { return error_; }

  bool is_null(int column) const { return sqlite3_column_type(statement_, column) == SQLITE_NULL; }
  int64_t integer(int column) const { return sqlite3_column_int64(statement_, column); }
  // `absent` where there is no number.
  int64_t integer(int column, int64_t absent) const {
    const int64_t value = sqlite3_column_int64(statement_, column);
    if (value != 0) return value;
    const int type = sqlite3_column_type(statement_, column);
    return type == SQLITE_INTEGER || type == SQLITE_FLOAT ? 0 : absent;
  }
  double real(int column) const { return sqlite3_column_double(statement_, column); }
  // Valid until the next step; empty where there is none.
  std::string_view text(int column) const {
    const unsigned char* bytes = sqlite3_column_text(statement_, column);
    if (bytes == nullptr) return {};
    return {reinterpret_cast<const char*>(bytes), static_cast<size_t>(sqlite3_column_bytes(statement_, column))};
  }

 private:
  void end(int code);
  Connection& connection_;
  sqlite3_stmt* statement_ = nullptr;
  int64_t read_ = 0;
  int64_t most_ = 0;
  std::string error_;
};

// A name as SQL has it, in quotes.
std::string sql_name(std::string_view name);

}  // namespace llmprof::nsys
