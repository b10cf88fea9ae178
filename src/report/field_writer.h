// How a field of a report's record is written, by its type: base/record_writer.h, and nanoseconds as milliseconds.
// Shared by JSON and CSV.
#pragma once

#include <string>

#include "analyze/report_data.h"
#include "base/record_writer.h"

namespace llmprof {

inline void write_json(JsonWriter& json, Milliseconds value) { json.value(value.ms()); }
inline void write_json(JsonWriter& json, KnownCount value) {
  if (value.known) {
    json.value(value.n);
  } else {
    json.null();
  }
}
inline void write_json(JsonWriter& json, KnownMilliseconds value) {
  if (value.known) {
    json.value(value.ms());
  } else {
    json.null();
  }
}

inline std::string csv_text(Milliseconds value) { return csv_text(value.ms()); }
inline std::string csv_text(KnownCount value) { return value.known ? csv_text(value.n) : std::string(); }
inline std::string csv_text(KnownMilliseconds value) { return value.known ? csv_text(value.ms()) : std::string(); }

}  // namespace llmprof
