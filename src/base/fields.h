// Declaring a table or a record once: name, type, unit and one sentence per column. Saving, CSV, JSON and
// docs/metrics.md walk the same declaration, so a name in a CSV can be found in the source. Text tables do not: they
// choose columns by hand.
//
//   the macro LLMPROF_STREAM_COLUMNS(C), whose body is
//     C(int32_t, device, "", "CUDA device ordinal") C(int64_t, stream, "", "CUDA stream id")
//   and then LLMPROF_TABLE(Streams, "streams", "CUDA streams with GPU activity", LLMPROF_STREAM_COLUMNS)
//
// makes a struct of vectors with size(), empty(), resize(), reserve(), clear(), for_each_column(visitor).
// LLMPROF_RECORD makes a plain struct for one row of a report, with for_each_field(visitor).
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace llmprof {

struct FieldInfo {
  std::string_view name;  // as it stands in CSV and JSON; units last
  std::string_view unit;  // "ns", "bytes", "frac", ... or ""
  std::string_view doc;   // one sentence
};

struct TableInfo {
  std::string_view name;
  std::string_view doc;
};

// Row handles are plain u32 indices into one table; kNoRow stands for "none".
using Row = uint32_t;
constexpr Row kNoRow = 0xFFFFFFFFU;

}  // namespace llmprof

#define LLMPROF_COLUMN_MEMBER_(type, name, unit, doc) std::vector<type> name;
#define LLMPROF_COLUMN_VISIT_(type, name, unit, doc) visitor(::llmprof::FieldInfo{#name, unit, doc}, self.name);
#define LLMPROF_COLUMN_RESIZE_(type, name, unit, doc) name.resize(row_count);
#define LLMPROF_COLUMN_RESERVE_(type, name, unit, doc) name.reserve(row_count);
#define LLMPROF_COLUMN_CLEAR_(type, name, unit, doc) name = {};
#define LLMPROF_COLUMN_SIZE_(type, name, unit, doc) \
  if (true) return name.size();

#define LLMPROF_TABLE(Type, table_name, table_doc, COLUMNS)                          \
  struct Type {                                                                      \
    COLUMNS(LLMPROF_COLUMN_MEMBER_)                                                  \
    static constexpr ::llmprof::TableInfo info() { return {table_name, table_doc}; } \
    /* All columns have the same length; the first one tells it. */                  \
    size_t size() const { COLUMNS(LLMPROF_COLUMN_SIZE_) }                            \
    bool empty() const { return size() == 0; }                                       \
    void resize(size_t row_count) { COLUMNS(LLMPROF_COLUMN_RESIZE_) }                \
    void reserve(size_t row_count) { COLUMNS(LLMPROF_COLUMN_RESERVE_) }              \
    void clear() { COLUMNS(LLMPROF_COLUMN_CLEAR_) }                                  \
    template <class V>                                                               \
    void for_each_column(V&& visitor) {                                              \
      Type& self = *this;                                                            \
      COLUMNS(LLMPROF_COLUMN_VISIT_)                                                 \
    }                                                                                \
    template <class V>                                                               \
    void for_each_column(V&& visitor) const {                                        \
      const Type& self = *this;                                                      \
      COLUMNS(LLMPROF_COLUMN_VISIT_)                                                 \
    }                                                                                \
  };

#define LLMPROF_FIELD_MEMBER_(type, name, unit, doc) type name{};

#define LLMPROF_RECORD(Type, table_name, table_doc, FIELDS)                          \
  struct Type {                                                                      \
    FIELDS(LLMPROF_FIELD_MEMBER_)                                                    \
    static constexpr ::llmprof::TableInfo info() { return {table_name, table_doc}; } \
    template <class V>                                                               \
    void for_each_field(V&& visitor) {                                               \
      Type& self = *this;                                                            \
      FIELDS(LLMPROF_COLUMN_VISIT_)                                                  \
    }                                                                                \
    template <class V>                                                               \
    void for_each_field(V&& visitor) const {                                         \
      const Type& self = *this;                                                      \
      FIELDS(LLMPROF_COLUMN_VISIT_)                                                  \
    }                                                                                \
  };
