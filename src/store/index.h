// index.sqlite: the rows of `llmprof runs list` without reading every manifest, and a table that other programs can
// ask. Nothing is in it that the folders do not say: rows are used only while their manifest is the file that it was
// (inode, time, size), and an index that is missing, damaged or of another version is made anew. So it is never synced,
// and no failure of it is an error.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "results/runs.h"

struct sqlite3;

namespace llmprof::store {

// By which a manifest is known again.
struct ManifestMark {
  int64_t inode = 0, changed_ns = 0, bytes = 0;
  friend bool operator==(const ManifestMark&, const ManifestMark&) = default;
};

struct IndexedRun {
  ManifestMark mark;
  RunRow row;  // without the store's folder before its own
};

class Index {
 public:
  // Opens FOLDER/index.sqlite, or begins it anew. `writable`: the caller holds the store's lock.
  Index(const std::string& folder, bool writable);
  ~Index();
  Index(const Index&) = delete;
  Index& operator=(const Index&) = delete;

  // All rows by the name of their folder; none where there is no index that can be read.
  const std::map<std::string, IndexedRun>& rows() const { return rows_; }
  // Makes the index hold exactly these.
  void replace(const std::map<std::string, IndexedRun>& rows);

 private:
  bool open();
  bool load();
  bool run(const char* sql);
  void close();
  void begin_anew();

  std::string path_;
  bool writable_;
  sqlite3* database_ = nullptr;
  std::map<std::string, IndexedRun> rows_;
};

}  // namespace llmprof::store
