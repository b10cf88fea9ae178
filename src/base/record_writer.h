// How the fields of a record (base/fields.h) are written as JSON and CSV, by their type: the one place where an absent
// value becomes null, or an empty field. Rooms add overloads for types of their own.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/csv.h"
#include "base/fields.h"
#include "base/json_writer.h"

namespace llmprof {

inline void write_json(JsonWriter& json, const std::string& value) { json.value(value); }
inline void write_json(JsonWriter& json, int64_t value) { json.value(value); }
inline void write_json(JsonWriter& json, double value) { json.value(value); }
inline void write_json(JsonWriter& json, bool value) { json.value(value); }
template <class T>
void write_json(JsonWriter& json, const std::optional<T>& value) {
  if (value) {
    write_json(json, *value);
  } else {
    json.null();
  }
}

// The fields of a record into an object that is open already.
template <class Record>
void write_fields(JsonWriter& json, const Record& record) {
  record.for_each_field([&](const FieldInfo& field, const auto& value) {
    json.key(field.name);
    write_json(json, value);
  });
}
template <class Record>
void write_record(JsonWriter& json, const Record& record) {
  json.begin_object();
  write_fields(json, record);
  json.end_object();
}
template <class Record>
void write_records(JsonWriter& json, std::string_view key, const std::vector<Record>& rows) {
  json.key(key).begin_array();
  for (const Record& row : rows) write_record(json, row);
  json.end_array();
}

// As CSV text; unknown is an empty field.
inline std::string csv_text(const std::string& value) { return value; }
inline std::string csv_text(int64_t value) { return std::to_string(value); }
inline std::string csv_text(bool value) { return value ? "true" : "false"; }
inline std::string csv_text(double value) { return std::isfinite(value) ? fmt::format("{}", value) : std::string(); }
template <class T>
std::string csv_text(const std::optional<T>& value) {
  return value ? csv_text(*value) : std::string();
}

// A header row with the names of the fields, and a row for each record.
template <class Record>
std::string records_csv(const std::vector<Record>& rows) {
  std::string out;
  std::vector<std::string> cells;
  Record{}.for_each_field([&](const FieldInfo& field, const auto&) { cells.emplace_back(field.name); });
  append_csv_row(out, cells);
  for (const Record& row : rows) {
    cells.clear();
    row.for_each_field([&](const FieldInfo&, const auto& value) { cells.push_back(csv_text(value)); });
    append_csv_row(out, cells);
  }
  return out;
}

}  // namespace llmprof
