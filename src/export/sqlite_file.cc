#include "export/sqlite_file.h"

#include <sqlite3.h>

#include "export/destination.h"

namespace llmprof::exporting {

SqliteFile::~SqliteFile() {
  sqlite3_finalize(statement_);
  sqlite3_close(db_);
}

Status SqliteFile::begin(const std::string& path) {
  const int code =
      sqlite3_open_v2(path.c_str(), &db_, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, nullptr);
  if (code != SQLITE_OK) return failed();
  return run("PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; PRAGMA locking_mode=EXCLUSIVE; BEGIN");
}

Status SqliteFile::run(const std::string& sql) {
  return sqlite3_exec(db_, sql.c_str(), nullptr, nullptr, nullptr) == SQLITE_OK ? Status() : failed();
}

Status SqliteFile::prepare(const std::string& sql) {
  sqlite3_finalize(statement_);
  statement_ = nullptr;
  const int code = sqlite3_prepare_v2(db_, sql.c_str(), static_cast<int>(sql.size()), &statement_, nullptr);
  return code == SQLITE_OK ? Status() : failed();
}

// SQLite's integers have 64 bits and a sign: what is above 2^63 keeps its bits.
void SqliteFile::bind(int at, const Cell& cell) {
  if (const int64_t* number = std::get_if<int64_t>(&cell)) {
    sqlite3_bind_int64(statement_, at, *number);
  } else if (const uint64_t* natural = std::get_if<uint64_t>(&cell)) {
    sqlite3_bind_int64(statement_, at, static_cast<sqlite3_int64>(*natural));
  } else if (const double* real = std::get_if<double>(&cell)) {
    sqlite3_bind_double(statement_, at, *real);
  } else if (const std::string_view* text = std::get_if<std::string_view>(&cell)) {
    // A null pointer would mean NULL.
    sqlite3_bind_text64(statement_, at, text->empty() ? "" : text->data(), text->size(), SQLITE_STATIC, SQLITE_UTF8);
  } else {
    sqlite3_bind_null(statement_, at);
  }
}

Status SqliteFile::insert() {
  if (sqlite3_step(statement_) != SQLITE_DONE) return failed();
  sqlite3_reset(statement_);
  return {};
}

Status SqliteFile::commit() {
  sqlite3_finalize(statement_);
  statement_ = nullptr;
  LLMPROF_CHECK(run("COMMIT"));
  if (sqlite3_close(db_) != SQLITE_OK) return failed();
  db_ = nullptr;
  return {};
}

tl::unexpected<Error> SqliteFile::failed() const {
  return cannot_write(shown_, db_ == nullptr ? "no memory" : sqlite3_errmsg(db_));
}

}  // namespace llmprof::exporting
