// CSV and JSON: the tables as they are.
#include <fmt/format.h>

#include <filesystem>

#include "base/csv.h"
#include "base/json_writer.h"
#include "export/destination.h"
#include "export/formats.h"
#include "export/table_view.h"

namespace llmprof::exporting {
namespace {

void append_number(std::string& out, const Cell& cell) {
  if (const int64_t* number = std::get_if<int64_t>(&cell))
    fmt::format_to(std::back_inserter(out), "{}", *number);
  else if (const uint64_t* natural = std::get_if<uint64_t>(&cell))
    fmt::format_to(std::back_inserter(out), "{}", *natural);
  else if (const double* real = std::get_if<double>(&cell))
    fmt::format_to(std::back_inserter(out), "{}", *real);
}

Status write_csv_table(const TableView& table, const std::string& part, const std::string& shown) {
  TextFile file(part, shown);
  std::string& out = file.buffer();
  out += "row";
  for (const ColumnView& column : table.columns) fmt::format_to(std::back_inserter(out), ",{}", column.name);
  out += '\n';
  for (size_t row = 0; row < table.rows; ++row) {
    fmt::format_to(std::back_inserter(out), "{}", row);
    for (const ColumnView& column : table.columns) {
      out += ',';
      const Cell cell = table.cell(column, row);
      if (const std::string_view* text = std::get_if<std::string_view>(&cell))
        append_csv_field(out, *text);
      else
        append_number(out, cell);
    }
    out += '\n';
    file.flush_if_large();
  }
  return file.close();
}

void append_json_table(TextFile& file, const TableView& table) {
  std::string& out = file.buffer();
  fmt::format_to(std::back_inserter(out), "\"{}\":{{\"columns\":[\"row\"", table.name);
  for (const ColumnView& column : table.columns) fmt::format_to(std::back_inserter(out), ",\"{}\"", column.name);
  out += "],\"rows\":[";
  for (size_t row = 0; row < table.rows; ++row) {
    fmt::format_to(std::back_inserter(out), "{}\n[{}", row == 0 ? "" : ",", row);
    for (const ColumnView& column : table.columns) {
      out += ',';
      const Cell cell = table.cell(column, row);
      if (const std::string_view* text = std::get_if<std::string_view>(&cell))
        append_json_string(out, *text);
      else if (std::holds_alternative<std::monostate>(cell))
        out += "null";
      else
        append_number(out, cell);
    }
    out += ']';
    file.flush_if_large();
  }
  out += "]}";
}

}  // namespace

Status write_csv(const Trace& trace, const std::string& path) {
  LLMPROF_ASSIGN(Destination destination, Destination::for_folder(path));
  const ExportedTables tables(trace);
  for (const TableView& table : tables.views()) {
    const std::string name = std::string(table.name) + ".csv";
    LLMPROF_CHECK(write_csv_table(table, (std::filesystem::path(destination.part()) / name).string(),
                                  (std::filesystem::path(path) / name).string()));
  }
  return destination.take_name();
}

Status write_json(const Trace& trace, const std::string& path) {
  LLMPROF_ASSIGN(Destination destination, Destination::for_file(path, false));
  const ExportedTables tables(trace);
  TextFile file(destination.part(), path);
  file.buffer() += "{\"schema\":\"llmprof.trace/1\",\"tables\":{";
  bool first = true;
  for (const TableView& table : tables.views()) {
    file.buffer() += first ? "\n" : ",\n";
    append_json_table(file, table);
    first = false;
  }
  file.buffer() += "\n}}\n";
  LLMPROF_CHECK(file.close());
  return destination.take_name();
}

}  // namespace llmprof::exporting
