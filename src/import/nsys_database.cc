#include "import/nsys_database.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>

namespace llmprof::nsys {
namespace {

constexpr int kValueBytesMax = 16 << 20;  // of one text or row
constexpr int kColumnsMax = 512;
constexpr size_t kTablesMax = 4096;
constexpr int64_t kRowBytesMin = 5;        // of a row without columns: its place in the page, its lengths
constexpr uint64_t kPackedRatioMax = 256;  // a file that someone packed with gzip or zstd
constexpr uint64_t kUnpackedFloorBytes = uint64_t{64} << 20;
constexpr size_t kFileHeadBytes = 100;

bool same_name(std::string_view a, std::string_view b) {
  return a.size() == b.size() && sqlite3_strnicmp(a.data(), b.data(), static_cast<int>(a.size())) == 0;
}

// A path as a URI of SQLite.
std::string uri_of(const std::string& path) {
  std::string uri = "file:";
  for (const char c : path) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '/' ||
                       c == '.' || c == '_' || c == '-';
    if (plain)
      uri += c;
    else
      uri += fmt::format("%{:02X}", static_cast<unsigned>(static_cast<unsigned char>(c)));
  }
  return uri + "?mode=ro&immutable=1";
}

// Whether the name of the input still leads to the file that it was opened as.
bool is_file_on_disk(const InputFile& input) {
  struct stat info {};
  return input.compression() == InputFile::Compression::kNone && stat(input.name().c_str(), &info) == 0 &&
         S_ISREG(info.st_mode) && static_cast<uint64_t>(info.st_size) == input.stored_bytes();
}

uint64_t big_endian(std::string_view bytes) {
  uint64_t value = 0;
  for (const char c : bytes) value = value << 8 | static_cast<unsigned char>(c);
  return value;
}

// What the header says the file holds; 0 where it does not say (written by old versions of SQLite).
uint64_t bytes_by_header(std::string_view head) {
  if (head.size() < kFileHeadBytes) return 0;
  const uint64_t page = big_endian(head.substr(16, 2));
  const uint64_t pages = big_endian(head.substr(28, 4));
  return pages * (page == 1 ? 65536 : page);
}

}  // namespace

std::string sql_name(std::string_view name) {
  std::string out = "\"";
  for (const char c : name) {
    if (c == '"') out += '"';
    out += c;
  }
  return out + "\"";
}

bool TableInfo::is_named(std::string_view other) const { return same_name(name, other); }

bool TableInfo::has(std::string_view column) const {
  return std::any_of(columns.begin(), columns.end(), [&](const std::string& own) { return same_name(own, column); });
}

// ---- opening -------------------------------------------------------------------------------------------------------

Result<std::unique_ptr<Database>> Database::open(InputFile& input) {
  std::unique_ptr<Database> database(new Database);
  database->name_ = input.name();
  const uint64_t whole = bytes_by_header(input.head());
  if (is_file_on_disk(input)) {
    database->path_ = input.name();
    database->bytes_ = input.stored_bytes();
  } else {
    const bool packed = input.compression() != InputFile::Compression::kNone;
    LLMPROF_ASSIGN(database->memory_,
                   input.read_all(packed ? kUnpackedFloorBytes + input.stored_bytes() * kPackedRatioMax : UINT64_MAX,
                                  "an SQLite file"));
    database->bytes_ = database->memory_.size();
  }
  database->cut_ = whole > database->bytes_;
  std::unique_ptr<Connection> connection = std::make_unique<Connection>();
  LLMPROF_CHECK(database->connect(*connection));
  LLMPROF_CHECK(database->list_tables(*connection));
  database->give_back(std::move(connection));
  return database;
}

Status Database::connect(Connection& connection) {
  const auto failed = [&] {
    return fail("expected an SQLite file, found one that cannot be read: " + connection.error(), name_,
                "the file is damaged or cut off: copy it again, or export it again with nsys export");
  };
  const bool on_disk = !path_.empty();
  // Each connection has a thread of its own.
  const int flags = SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_URI | (on_disk ? 0 : SQLITE_OPEN_MEMORY);
  if (sqlite3_open_v2(on_disk ? uri_of(path_).c_str() : ":memory:", &connection.db_, flags, nullptr) != SQLITE_OK)
    return failed();
  sqlite3* db = connection.db_;
  for (const int off : {SQLITE_DBCONFIG_ENABLE_TRIGGER, SQLITE_DBCONFIG_ENABLE_VIEW, SQLITE_DBCONFIG_TRUSTED_SCHEMA,
                        SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, SQLITE_DBCONFIG_DQS_DDL, SQLITE_DBCONFIG_DQS_DML})
    sqlite3_db_config(db, off, 0, nullptr);
  sqlite3_db_config(db, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
  sqlite3_limit(db, SQLITE_LIMIT_LENGTH, kValueBytesMax);
  sqlite3_limit(db, SQLITE_LIMIT_COLUMN, kColumnsMax);
  sqlite3_limit(db, SQLITE_LIMIT_ATTACHED, 0);
  if (!on_disk &&
      sqlite3_deserialize(db, "main", reinterpret_cast<unsigned char*>(memory_.data()),
                          static_cast<sqlite3_int64>(memory_.size()), static_cast<sqlite3_int64>(memory_.size()),
                          SQLITE_DESERIALIZE_READONLY) != SQLITE_OK)
    return failed();
  // Cells are checked before they are read. Rows are read once and in order: a big cache would hold what is done with.
  const char* const kSettings = "PRAGMA cell_size_check=1; PRAGMA cache_size=-2048; PRAGMA query_only=1";
  if (sqlite3_exec(db, kSettings, nullptr, nullptr, nullptr) != SQLITE_OK) return failed();
  return {};
}

std::unique_ptr<Connection> Database::take() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!idle_.empty()) {
      std::unique_ptr<Connection> connection = std::move(idle_.back());
      idle_.pop_back();
      return connection;
    }
  }
  std::unique_ptr<Connection> connection = std::make_unique<Connection>();
  if (!connect(*connection)) return nullptr;
  return connection;
}

void Database::give_back(std::unique_ptr<Connection> connection) {
  const std::lock_guard<std::mutex> lock(mutex_);
  idle_.push_back(std::move(connection));
}

// ---- what is in it -------------------------------------------------------------------------------------------------

Status Database::list_tables(Connection& connection) {
  TableInfo schema;
  schema.name = "sqlite_master";
  schema.columns = {"type", "name", "rootpage"};
  Rows rows(connection, schema, {"type", "name", "rootpage"}, {INT64_MIN, INT64_MAX, static_cast<int64_t>(kTablesMax)});
  std::vector<std::string> names;
  while (rows.next()) {
    const std::string name(rows.text(1));
    if (name.empty() || name.starts_with("sqlite_")) continue;
    // A table without pages of its own is a virtual one.
    if (rows.text(0) == "table" && rows.integer(2) > 0)
      names.push_back(name);
    else if (rows.text(0) == "table" || rows.text(0) == "view")
      others_.push_back(name);
  }
  if (names.empty() && !rows.error().empty())
    return fail("expected an SQLite file, found one that cannot be read: " + rows.error(), name_,
                "the file is damaged or cut off: copy it again, or export it again with nsys export");
  schema_damage_ = rows.error();
  for (std::string& name : names) {
    TableInfo table;
    table.name = name;
    if (describe(connection, table))
      tables_.push_back(std::move(table));
    else
      others_.push_back(std::move(name));
  }
  return {};
}

// An error is one of this table alone.
Status Database::describe(Connection& connection, TableInfo& table) {
  sqlite3_stmt* statement = nullptr;
  const std::string columns = "PRAGMA table_xinfo(" + sql_name(table.name) + ")";
  if (sqlite3_prepare_v2(connection.get(), columns.c_str(), -1, &statement, nullptr) != SQLITE_OK)
    return fail(connection.error());
  // Columns: cid, name, type, notnull, dflt_value, pk, hidden.
  while (sqlite3_step(statement) == SQLITE_ROW) {
    const unsigned char* name = sqlite3_column_text(statement, 1);
    if (name != nullptr && sqlite3_column_int(statement, 6) == 0)
      table.columns.emplace_back(reinterpret_cast<const char*>(name));
  }
  sqlite3_finalize(statement);
  table.rows_max = static_cast<int64_t>(bytes_) / (kRowBytesMin + static_cast<int64_t>(table.columns.size())) + 1;
  int64_t ends[2] = {0, -1};
  for (int i = 0; i < 2; ++i) {
    const std::string sql =
        fmt::format("SELECT {}(rowid) FROM {} NOT INDEXED", i == 0 ? "min" : "max", sql_name(table.name));
    if (sqlite3_prepare_v2(connection.get(), sql.c_str(), -1, &statement, nullptr) != SQLITE_OK)
      return fail(connection.error());
    const bool some = sqlite3_step(statement) == SQLITE_ROW && sqlite3_column_type(statement, 0) == SQLITE_INTEGER;
    if (some) ends[i] = sqlite3_column_int64(statement, 0);
    sqlite3_finalize(statement);
    if (!some) return {};  // empty, or found to be damaged when it is read
  }
  table.first_row = ends[0];
  table.last_row = ends[1];
  const uint64_t span = static_cast<uint64_t>(ends[1]) - static_cast<uint64_t>(ends[0]);
  // A column of that name would stand in for the number.
  table.numbered = ends[1] >= ends[0] && span < static_cast<uint64_t>(table.rows_max) && !table.has("rowid");
  if (!table.numbered && ends[1] >= ends[0]) {
    table.first_row = 0;
    table.last_row = table.rows_max - 1;
  }
  return {};
}

const TableInfo* Database::find(std::string_view name) const {
  for (const TableInfo& table : tables_)
    if (table.is_named(name)) return &table;
  return nullptr;
}

// ---- rows ----------------------------------------------------------------------------------------------------------

Rows::Rows(Connection& connection, const TableInfo& table, const std::vector<std::string_view>& columns,
           const RowRange& range)
    : connection_(connection), most_(range.most) {
  std::string sql = "SELECT ";
  for (const std::string_view column : columns) {
    sql += table.has(column) ? sql_name(column) : "NULL";
    sql += ", ";
  }
  sql.resize(sql.size() - 2);
  sql += " FROM " + sql_name(table.name) + " NOT INDEXED";
  const bool part = range.first != INT64_MIN || range.last != INT64_MAX;
  if (part) sql += " WHERE rowid BETWEEN ?1 AND ?2";
  if (sqlite3_prepare_v2(connection.get(), sql.c_str(), static_cast<int>(sql.size()), &statement_, nullptr) !=
      SQLITE_OK) {
    error_ = connection.error();
    statement_ = nullptr;
    return;
  }
  if (!part) return;
  sqlite3_bind_int64(statement_, 1, range.first);
  sqlite3_bind_int64(statement_, 2, range.last);
}

void Rows::end(int code) {
  if (code == SQLITE_ROW)
    error_ = "the table gives more rows than fit into the file";
  else if (code != SQLITE_DONE)
    error_ = connection_.error();
  sqlite3_finalize(statement_);
  statement_ = nullptr;
}

}  // namespace llmprof::nsys
