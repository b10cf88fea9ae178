#include "store/index.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <unistd.h>

#include <utility>

#include "base/record_json.h"
#include "store/files.h"

namespace llmprof::store {
namespace {

constexpr const char* kIndexSchema =
    "CREATE TABLE runs(folder TEXT PRIMARY KEY, number INTEGER NOT NULL, kind TEXT NOT NULL, name TEXT NOT NULL, state "
    "TEXT NOT NULL, pinned INTEGER NOT NULL, compressed INTEGER NOT NULL, start_unix_ns INTEGER NOT NULL, ttft_ms "
    "REAL, "
    "tpot_ms REAL, stored_bytes INTEGER NOT NULL, gpu TEXT NOT NULL, command TEXT NOT NULL, inode INTEGER NOT NULL, "
    "changed_ns INTEGER NOT NULL, manifest_bytes INTEGER NOT NULL, bytes INTEGER NOT NULL, xxh3 TEXT NOT NULL) WITHOUT "
    "ROWID; PRAGMA user_version=1;";
constexpr int kIndexVersion = 1;

// A statement that ends with its owner.
class Statement {
 public:
  Statement(sqlite3* database, const char* sql) {
    if (sqlite3_prepare_v2(database, sql, -1, &statement_, nullptr) != SQLITE_OK) statement_ = nullptr;
  }
  ~Statement() { sqlite3_finalize(statement_); }
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  bool is_good() const { return statement_ != nullptr; }
  int step() { return statement_ != nullptr ? sqlite3_step(statement_) : SQLITE_ERROR; }
  void reset() { sqlite3_reset(statement_); }

  void put(int at, const std::string& text) {
    sqlite3_bind_text(statement_, at, text.data(), static_cast<int>(text.size()), SQLITE_TRANSIENT);
  }
  void put(int at, std::string_view text) { put(at, std::string(text)); }
  void put(int at, int64_t number) { sqlite3_bind_int64(statement_, at, number); }
  void put(int at, const OptDouble& number) {
    if (number)
      sqlite3_bind_double(statement_, at, *number);
    else
      sqlite3_bind_null(statement_, at);
  }

  std::string text(int at) const {
    const unsigned char* bytes = sqlite3_column_text(statement_, at);
    return bytes == nullptr ? std::string()
                            : std::string(reinterpret_cast<const char*>(bytes),
                                          static_cast<size_t>(sqlite3_column_bytes(statement_, at)));
  }
  int64_t number(int at) const { return sqlite3_column_int64(statement_, at); }
  OptDouble real(int at) const {
    if (sqlite3_column_type(statement_, at) == SQLITE_NULL) return std::nullopt;
    return sqlite3_column_double(statement_, at);
  }

 private:
  sqlite3_stmt* statement_ = nullptr;
};

// A file that is damaged may still be a database, with another word in a row.
std::string checksum_of_row(const IndexedRun& one) {
  JsonWriter json(0);
  json.begin_object();
  write_fields(json, one.row);
  json.field("inode", one.mark.inode).field("changed_ns", one.mark.changed_ns).field("manifest_bytes", one.mark.bytes);
  json.end_object();
  return checksum_of(json.str());
}

template <class Enum>
bool take_name(const std::string& text, Enum& out) {
  for (size_t i = 0; i < static_cast<size_t>(Enum::kCount); ++i)
    if (name_of(static_cast<Enum>(i)) == text) return out = static_cast<Enum>(i), true;
  return false;
}

}  // namespace

Index::Index(const std::string& folder, bool writable) : path_(folder + "/index.sqlite"), writable_(writable) {
  if (open() && load()) return;
  if (writable_) begin_anew();
}

Index::~Index() { close(); }

void Index::close() {
  sqlite3_close(database_);
  database_ = nullptr;
}

bool Index::run(const char* sql) { return sqlite3_exec(database_, sql, nullptr, nullptr, nullptr) == SQLITE_OK; }

bool Index::open() {
  const int how = writable_ ? SQLITE_OPEN_READWRITE : SQLITE_OPEN_READONLY;
  if (access(path_.c_str(), F_OK) != 0 ||
      sqlite3_open_v2(path_.c_str(), &database_, how | SQLITE_OPEN_NOFOLLOW, nullptr) != SQLITE_OK)
    return false;
  constexpr int kOthersMs = 2000;
  sqlite3_busy_timeout(database_, kOthersMs);
  // A crash of the system may cost the index; it is made anew then.
  return run("PRAGMA synchronous=OFF; PRAGMA trusted_schema=OFF;");
}

bool Index::load() {
  Statement version(database_, "PRAGMA user_version");
  if (version.step() != SQLITE_ROW || version.number(0) != kIndexVersion) return false;
  Statement all(database_,
                "SELECT folder, number, kind, name, state, pinned, compressed, start_unix_ns, ttft_ms, tpot_ms, "
                "stored_bytes, gpu, command, inode, changed_ns, manifest_bytes, bytes, xxh3 FROM runs");
  int got = SQLITE_ERROR;
  while ((got = all.step()) == SQLITE_ROW) {
    IndexedRun one;
    one.row.folder = all.text(0);
    one.row.number = all.number(1);
    const bool known = take_name(all.text(2), one.row.kind) && take_name(all.text(4), one.row.state);
    one.row.name = all.text(3);
    one.row.pinned = all.number(5) != 0;
    one.row.compressed = all.number(6) != 0;
    one.row.start_unix_ns = all.number(7);
    one.row.ttft_ms = all.real(8);
    one.row.tpot_ms = all.real(9);
    one.row.bytes = all.number(16);
    one.row.stored_bytes = all.number(10);
    one.row.gpu = all.text(11);
    one.row.command = all.text(12);
    one.mark = {all.number(13), all.number(14), all.number(15)};
    if (known && all.text(17) == checksum_of_row(one)) rows_.emplace(one.row.folder, std::move(one));
  }
  if (got == SQLITE_DONE) return true;
  rows_.clear();
  return false;
}

void Index::begin_anew() {
  close();
  for (const char* ending : {"", "-journal", "-wal", "-shm"}) unlink((path_ + ending).c_str());
  // Command lines are nobody else's business; SQLite would make a file that all may read.
  { const Descriptor own(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600)); }
  if (sqlite3_open_v2(path_.c_str(), &database_, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOFOLLOW,
                      nullptr) == SQLITE_OK &&
      run("PRAGMA synchronous=OFF; PRAGMA trusted_schema=OFF;") && run(kIndexSchema))
    return;
  close();
}

void Index::replace(const std::map<std::string, IndexedRun>& rows) {
  if (!writable_ || database_ == nullptr) return;
  const auto write = [&]() {
    if (!run("BEGIN IMMEDIATE; DELETE FROM runs;")) return false;
    Statement insert(database_, "INSERT INTO runs VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)");
    if (!insert.is_good()) return false;
    for (const auto& [folder, one] : rows) {
      const RunRow& row = one.row;
      insert.put(1, folder);
      insert.put(2, row.number);
      insert.put(3, name_of(row.kind));
      insert.put(4, row.name);
      insert.put(5, name_of(row.state));
      insert.put(6, int64_t{row.pinned});
      insert.put(7, int64_t{row.compressed});
      insert.put(8, row.start_unix_ns);
      insert.put(9, row.ttft_ms);
      insert.put(10, row.tpot_ms);
      insert.put(11, row.stored_bytes);
      insert.put(12, row.gpu);
      insert.put(13, row.command);
      insert.put(14, one.mark.inode);
      insert.put(15, one.mark.changed_ns);
      insert.put(16, one.mark.bytes);
      insert.put(17, row.bytes);
      insert.put(18, checksum_of_row(one));
      if (insert.step() != SQLITE_DONE) return false;
      insert.reset();
    }
    return run("COMMIT");
  };
  if (write()) {
    rows_ = rows;
    return;
  }
  run("ROLLBACK");
  // What could not be brought up to date is not left to be read half true: marks guard each row, and a damaged file
  // goes.
  close();
  for (const char* ending : {"", "-journal"}) unlink((path_ + ending).c_str());
}

}  // namespace llmprof::store
