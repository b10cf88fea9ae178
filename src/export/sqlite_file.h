// A SQLite file that is written from its beginning to its end, in one transaction without a journal, since an
// unfinished file is given up anyway (destination.h).
#pragma once

#include <string>

#include "base/result.h"
#include "export/table_view.h"

struct sqlite3;
struct sqlite3_stmt;

namespace llmprof::exporting {

class SqliteFile {
 public:
  // `shown`: what errors call it.
  explicit SqliteFile(std::string shown) : shown_(std::move(shown)) {}
  SqliteFile(const SqliteFile&) = delete;
  SqliteFile& operator=(const SqliteFile&) = delete;
  ~SqliteFile();

  Status begin(const std::string& path);  // opens it, and the transaction
  Status run(const std::string& sql);
  // A statement with ? for values, numbered from 1; bind() all of them, then insert(). A bound text must live until
  // then, be UTF-8, and is not NULL where it is empty.
  Status prepare(const std::string& sql);
  void bind(int at, const Cell& cell);
  Status insert();
  Status commit();  // and closes it

 private:
  tl::unexpected<Error> failed() const;
  std::string shown_;
  sqlite3* db_ = nullptr;
  sqlite3_stmt* statement_ = nullptr;
};

}  // namespace llmprof::exporting
