// Any bytes as a Kineto trace, and what becomes of it in every format of `llmprof export`: each file is whole, readers
// that know nothing of the writer take it, it has the trace's rows, and no name in it does harm.
#include <simdjson.h>
#include <sqlite3.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

#include "derive/derive.h"
#include "export/export.h"
#include "harmless.h"
#include "import/kineto.h"
#include "whole_program.h"

namespace {

using namespace llmprof;
using fuzz::broken;
namespace fs = std::filesystem;

// Removed when the program ends.
class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "llmprof_export_XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) broken("no folder can be made below", fs::temp_directory_path().string());
    path_ = name;
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() { fs::remove_all(path_); }
  fs::path fresh(std::string_view name) const {
    const fs::path path = path_ / name;
    fs::remove_all(path);
    return path;
  }

 private:
  fs::path path_;
};

std::string bytes_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// Tables whose rows are counted.
struct Counted {
  std::string_view name;
  size_t rows;
};

void check_csv(const fs::path& folder, std::string_view table, size_t rows) {
  const std::string text = bytes_of(folder / (std::string(table) + ".csv"));
  if (!fuzz::is_harmless("csv", text)) broken("a table means harm", std::string(table));
  size_t lines = 0;
  bool quoted = false;
  for (const char c : text) {
    quoted ^= c == '"';
    lines += c == '\n' && !quoted ? 1 : 0;
  }
  if (quoted || lines != rows + 1) broken("CSV has other rows than the trace", std::string(table));
}

void check_json(const fs::path& path, std::string_view table, size_t rows) {
  simdjson::dom::parser parser;
  simdjson::dom::element document;
  if (parser.load(path.string()).get(document) != simdjson::SUCCESS) broken("JSON cannot be read", path.string());
  simdjson::dom::element found;
  if (document["tables"][table].get(found) != simdjson::SUCCESS) broken("JSON lacks a table", std::string(table));
  simdjson::dom::array all;
  if (found.get(all) != simdjson::SUCCESS && found["rows"].get(all) != simdjson::SUCCESS)
    broken("JSON has no rows of a table", std::string(table));
  if (all.size() < 0xFFFFFF && all.size() != rows) broken("JSON has other rows than the trace", std::string(table));
}

int64_t asked(sqlite3* database, const std::string& sql) {
  sqlite3_stmt* statement = nullptr;
  if (sqlite3_prepare_v2(database, sql.c_str(), -1, &statement, nullptr) != SQLITE_OK) broken("SQL fails", sql);
  if (sqlite3_step(statement) != SQLITE_ROW) broken("SQL gives no row", sql);
  const int64_t value = sqlite3_column_int64(statement, 0);
  sqlite3_finalize(statement);
  return value;
}

void check_sqlite(const fs::path& path, std::string_view table, size_t rows) {
  sqlite3* database = nullptr;
  if (sqlite3_open_v2(path.c_str(), &database, SQLITE_OPEN_READONLY, nullptr) != SQLITE_OK)
    broken("SQLite cannot open", path.string());
  if (asked(database, "SELECT count(*) FROM pragma_integrity_check WHERE integrity_check <> 'ok'") != 0)
    broken("SQLite finds damage in", path.string());
  if (asked(database, "SELECT count(*) FROM " + std::string(table)) != static_cast<int64_t>(rows))
    broken("SQLite has other rows than the trace", std::string(table));
  sqlite3_close(database);
}

// The work of the GPU lies in four tables, one for each kind.
void check_nsys(const fs::path& path, std::string_view table, size_t rows) {
  if (table != "gpu_ops") return;
  check_sqlite(path,
               "(SELECT 1 FROM CUPTI_ACTIVITY_KIND_KERNEL UNION ALL SELECT 1 FROM CUPTI_ACTIVITY_KIND_MEMCPY UNION ALL "
               "SELECT 1 FROM CUPTI_ACTIVITY_KIND_MEMSET UNION ALL SELECT 1 FROM CUPTI_ACTIVITY_KIND_GRAPH_TRACE)",
               rows);
}

// A Trace is packets of field 1, each as long as it says.
void check_perfetto(const fs::path& path) {
  const std::string bytes = bytes_of(path);
  for (size_t at = 0; at < bytes.size();) {
    if (bytes[at++] != 0x0A) broken("a packet does not begin where the one before ends", path.string());
    uint64_t length = 0;
    int shift = 0;
    for (bool more = true; more; shift += 7) {
      if (at >= bytes.size() || shift > 63) broken("a packet's length is cut", path.string());
      const auto byte = static_cast<uint8_t>(bytes[at++]);
      length |= uint64_t{byte & 0x7FU} << shift;
      more = byte >= 0x80;
    }
    if (length > bytes.size() - at) broken("a packet is longer than the file", path.string());
    at += length;
  }
}

void check(const ExportFormat& format, const fs::path& path, const Counted& table) {
  if (format.name == "csv") return check_csv(path, table.name, table.rows);
  if (format.name == "json") return check_json(path, table.name, table.rows);
  if (format.name == "sqlite") return check_sqlite(path, table.name, table.rows);
  if (format.name == "nsys-sqlite") return check_nsys(path, table.name, table.rows);
  if (format.name == "perfetto") return check_perfetto(path);
  broken("nobody checks the format", std::string(format.name));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Folder folder;
  if (!fuzz::kOneThread) return 0;
  Result<InputFile> input =
      InputFile::from_memory(std::string_view(reinterpret_cast<const char*>(data), size), "fuzz.json");
  Trace trace;
  if (!input || !kineto::import(*input, trace)) return 0;
  finish_import(trace);
  if (Status status = derive(trace); !status) broken("derive failed", status.error().text());
  for (const ExportFormat& format : export_formats()) {
    const fs::path path = folder.fresh(format.name);
    if (Status status = format.write(trace, path.string()); !status) broken("cannot write", status.error().text());
    for (const Counted& table : {Counted{"gpu_ops", trace.gpu_ops.size()}, Counted{"ops", trace.ops.size()},
                                 Counted{"annotations", trace.annotations.size()}})
      check(format, path, table);
  }
  return 0;
}
