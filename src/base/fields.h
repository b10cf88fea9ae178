// Declaring a table or a record once: name, type, unit and one sentence per column. Saving, CSV, JSON and
// docs/metrics.md walk the same declaration, so a name in a CSV can be found in the source. Text tables do not: they
// choose columns by hand.
//
//   the macro LLMPROF_STREAM_COLUMNS(C), whose body is
//     C(DeviceOrdinal, device, "", "CUDA device ordinal") C(int64_t, stream, "", "CUDA stream id")
//   and then LLMPROF_TABLE(Streams, "streams", "CUDA streams with GPU activity", LLMPROF_STREAM_COLUMNS)
//
// makes a struct of columns (vectors, mostly) with size(), empty(), resize(), reserve(), clear(),
// for_each_column(visitor), append_rows of another table, and append(row), whose row names the columns that are known:
// streams.append({.device = 0, .stream = 7}). Rows are equal whose content() is (RowIndex::find_or_append,
// base/flat_index.h). LLMPROF_RECORD makes a plain struct of the same shape for rows of a report, with
// for_each_field(visitor).
//
// What a column means to the program is in its type: RowId<Table> says which table it points into, Always<...> that it
// is never empty, Mostly32<...> that its halves are kept apart, TimeNs, LengthNs, DurationNs and DeviceOrdinal what its
// number is. The sentences are for readers alone: for_each_column and for_each_field do not hand them out, only
// sentences() does, which the documentation is made from (report/metrics_doc.h). No other code can depend on a wording.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <limits>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/halved_column.h"

namespace llmprof {

// ---- rows ----------------------------------------------------------------------------------------------------------

// An index into some table, where code works on tables of every kind.
using Row = uint32_t;

// "No row", as a Row and as the id of any table.
struct NoRow {
  static constexpr Row kValue = 0xFFFFFFFFU;
  constexpr operator Row() const { return kValue; }  // NOLINT: stands wherever a Row does
};
inline constexpr NoRow kNoRow;

// The row of one table. Indexes that table's columns as it is; the id of another table is neither assigned to it nor
// compared with it. Kept with all bits inverted, so that no row is zeros: memory of columns without an entry can be
// given back (base/zero_pages.h). Files hold rows as they are (trace/trace_block.h).
template <class Table>
class RowId {
 public:
  using Target = Table;
  constexpr RowId() = default;                   // no row
  constexpr RowId(NoRow) {}                      // NOLINT: kNoRow is an id of every table
  constexpr RowId(Row row) : inverted_(~row) {}  // NOLINT: loops over a table count in Row
  template <class Other>
  requires(!std::is_same_v<Other, Table>) RowId(RowId<Other>)
  = delete;
  template <class Wide>
  requires(std::is_arithmetic_v<Wide> && !std::is_same_v<Wide, Row>) explicit constexpr RowId(Wide row)
      : inverted_(~static_cast<Row>(row)) {}
  constexpr operator Row() const { return ~inverted_; }  // NOLINT: ids index vectors
  constexpr RowId& operator++() {
    --inverted_;
    return *this;
  }

 private:
  Row inverted_ = ~NoRow::kValue;
};
template <class A, class B>
requires(!std::is_same_v<A, B>) bool operator==(RowId<A>, RowId<B>) = delete;
template <class A, class B>
requires(!std::is_same_v<A, B>) bool operator<(RowId<A>, RowId<B>) = delete;

template <class T>
inline constexpr bool is_row_id = false;
template <class Table>
inline constexpr bool is_row_id<RowId<Table>> = true;

// ---- what a column is ----------------------------------------------------------------------------------------------

enum class ColumnRole : uint8_t {
  kValue,     // nothing but its type; a row id may be empty (kNoRow)
  kOwner,     // a row id that is never empty
  kMoment,    // nanoseconds on the trace's epoch: moves with its clock
  kLength,    // nanoseconds: any other length of time
  kDuration,  // nanoseconds: how long the row lasts, never negative
  kDevice     // ordinal of a device, negative where there is none; recordings that are joined are renumbered
};

// Types that stand in declarations for a plain number with a role.
struct TimeNs {};
struct LengthNs {};
struct DurationNs {};
struct DeviceOrdinal {};
template <class Id>
struct Always {};
// A number of 64 bits that mostly takes half of them, or is absent.
template <class T>
struct Mostly32 {};

template <class V, ColumnRole role, class C = std::vector<V>>
struct ColumnOf {
  using Value = V;
  using Column = C;
  static constexpr ColumnRole kRole = role;
};
template <class T>
struct ColumnType : ColumnOf<T, ColumnRole::kValue> {};
template <>
struct ColumnType<TimeNs> : ColumnOf<int64_t, ColumnRole::kMoment> {};
template <>
struct ColumnType<LengthNs> : ColumnOf<int64_t, ColumnRole::kLength> {};
template <>
struct ColumnType<DurationNs> : ColumnOf<int64_t, ColumnRole::kDuration> {};
template <>
struct ColumnType<DeviceOrdinal> : ColumnOf<int32_t, ColumnRole::kDevice> {};
template <class Id>
struct ColumnType<Always<Id>> : ColumnOf<Id, ColumnRole::kOwner> {
  static_assert(is_row_id<Id>);
};

// What a column holds where a recorder does not say: kNoRow, NaN, -1, and 0 of an unsigned number or an enumeration.
template <class T>
constexpr T absent_value() {
  if constexpr (std::is_floating_point_v<T>)
    return std::numeric_limits<T>::quiet_NaN();
  else if constexpr (std::is_integral_v<T> && std::is_signed_v<T>)
    return T{-1};
  else
    return T{};
}

// A duration is never absent, and some take no time.
template <class T>
struct ColumnType<Mostly32<T>>
    : ColumnOf<typename ColumnType<T>::Value, ColumnType<T>::kRole,
               HalvedColumn<typename ColumnType<T>::Value, ColumnType<T>::kRole == ColumnRole::kDuration
                                                               ? typename ColumnType<T>::Value{}
                                                               : absent_value<typename ColumnType<T>::Value>()>> {};

template <class T>
void append_values(std::vector<T>& to, const std::vector<T>& from) {
  to.insert(to.end(), from.begin(), from.end());
}
template <class T, T kZero>
void append_values(HalvedColumn<T, kZero>& to, const HalvedColumn<T, kZero>& from) {
  to.append(from);
}

// A value as bits. NaN stands for "absent" and equals itself.
template <class T>
constexpr uint64_t content_of(T value) {
  if constexpr (std::is_same_v<T, double>)
    return std::bit_cast<uint64_t>(value);
  else if constexpr (std::is_same_v<T, float>)
    return std::bit_cast<uint32_t>(value);
  else
    return static_cast<uint64_t>(value);
}

struct FieldInfo {
  std::string_view name;  // as it stands in CSV and JSON; units last
  std::string_view unit;  // "ns", "bytes", "frac", ... or ""; for who reads a report
  ColumnRole role = ColumnRole::kValue;
};

struct TableInfo {
  std::string_view name;
};

// One line of the documentation: a column, or with an empty unit a table.
struct FieldSentence {
  std::string_view name, unit, sentence;
};

}  // namespace llmprof

// A test builds everything with other sentences than the program: see tests/schema.
#ifndef LLMPROF_SENTENCE
#define LLMPROF_SENTENCE(doc) doc
#endif

#define LLMPROF_COLUMN_MEMBER_(type, name, unit, doc) ::llmprof::ColumnType<type>::Column name;
#define LLMPROF_COLUMN_VISIT_(type, name, unit, doc) \
  visitor(::llmprof::FieldInfo{#name, unit, ::llmprof::ColumnType<type>::kRole}, self.name);
#define LLMPROF_COLUMN_SENTENCE_(type, name, unit, doc) \
  visitor(::llmprof::FieldSentence{#name, unit, LLMPROF_SENTENCE(doc)});
#define LLMPROF_COLUMN_RESIZE_(type, name, unit, doc) name.resize(row_count);
#define LLMPROF_COLUMN_RESERVE_(type, name, unit, doc) name.reserve(row_count);
#define LLMPROF_COLUMN_CLEAR_(type, name, unit, doc) name = {};
#define LLMPROF_COLUMN_ABSENT_(type, name, unit, doc) \
  ::llmprof::ColumnType<type>::Value name = ::llmprof::absent_value<::llmprof::ColumnType<type>::Value>();
#define LLMPROF_COLUMN_APPEND_(type, name, unit, doc) name.push_back(row.name);
#define LLMPROF_COLUMN_APPEND_ROWS_(type, name, unit, doc) ::llmprof::append_values(name, rows.name);
#define LLMPROF_COLUMN_CONTENT_(type, name, unit, doc) ::llmprof::content_of(name),
#define LLMPROF_COLUMN_GET_(type, name, unit, doc) this->name[row],
#define LLMPROF_COLUMN_SIZE_(type, name, unit, doc) \
  if (true) return name.size();

// The table itself, then its columns.
#define LLMPROF_SENTENCES_(table_name, table_doc, COLUMNS)                          \
  template <class V>                                                                \
  static void sentences(V&& visitor) {                                              \
    visitor(::llmprof::FieldSentence{table_name, {}, LLMPROF_SENTENCE(table_doc)}); \
    COLUMNS(LLMPROF_COLUMN_SENTENCE_)                                               \
  }

#define LLMPROF_TABLE_BODY_(Type, table_name, table_doc, COLUMNS)                                \
  COLUMNS(LLMPROF_COLUMN_MEMBER_)                                                                \
  static constexpr ::llmprof::TableInfo info() { return {table_name}; }                          \
  /* All columns have the same length; the first one tells it. */                                \
  size_t size() const { COLUMNS(LLMPROF_COLUMN_SIZE_) }                                          \
  bool empty() const { return size() == 0; }                                                     \
  struct Values {                                                                                \
    COLUMNS(LLMPROF_COLUMN_ABSENT_)                                                              \
    auto content() const { return std::to_array<uint64_t>({COLUMNS(LLMPROF_COLUMN_CONTENT_)}); } \
  };                                                                                             \
  void append_rows(const Type& rows) { COLUMNS(LLMPROF_COLUMN_APPEND_ROWS_) }                    \
  void append(const Values& row){COLUMNS(LLMPROF_COLUMN_APPEND_)} Values row(size_t row) const { \
    return {COLUMNS(LLMPROF_COLUMN_GET_)};                                                       \
  }                                                                                              \
  void resize(size_t row_count) { COLUMNS(LLMPROF_COLUMN_RESIZE_) }                              \
  void reserve(size_t row_count) { COLUMNS(LLMPROF_COLUMN_RESERVE_) }                            \
  void clear() { COLUMNS(LLMPROF_COLUMN_CLEAR_) }                                                \
  template <class V>                                                                             \
  void for_each_column(V&& visitor) {                                                            \
    Type& self = *this;                                                                          \
    COLUMNS(LLMPROF_COLUMN_VISIT_)                                                               \
  }                                                                                              \
  template <class V>                                                                             \
  void for_each_column(V&& visitor) const {                                                      \
    const Type& self = *this;                                                                    \
    COLUMNS(LLMPROF_COLUMN_VISIT_)                                                               \
  }                                                                                              \
  LLMPROF_SENTENCES_(table_name, table_doc, COLUMNS)

#define LLMPROF_TABLE(Type, table_name, table_doc, COLUMNS)   \
  struct Type {                                               \
    LLMPROF_TABLE_BODY_(Type, table_name, table_doc, COLUMNS) \
  };
// Row i belongs to row i of the table Of: as many rows as that one, or none.
#define LLMPROF_PARALLEL_TABLE(Type, Of, table_name, table_doc, COLUMNS) \
  struct Type {                                                          \
    using ParallelTo = Of;                                               \
    LLMPROF_TABLE_BODY_(Type, table_name, table_doc, COLUMNS)            \
  };

#define LLMPROF_FIELD_MEMBER_(type, name, unit, doc) type name{};
#define LLMPROF_FIELD_VISIT_(type, name, unit, doc) visitor(::llmprof::FieldInfo{#name, unit}, self.name);

#define LLMPROF_RECORD(Type, table_name, table_doc, FIELDS)               \
  struct Type {                                                           \
    FIELDS(LLMPROF_FIELD_MEMBER_)                                         \
    static constexpr ::llmprof::TableInfo info() { return {table_name}; } \
    template <class V>                                                    \
    void for_each_field(V&& visitor) {                                    \
      Type& self = *this;                                                 \
      FIELDS(LLMPROF_FIELD_VISIT_)                                        \
    }                                                                     \
    template <class V>                                                    \
    void for_each_field(V&& visitor) const {                              \
      const Type& self = *this;                                           \
      FIELDS(LLMPROF_FIELD_VISIT_)                                        \
    }                                                                     \
    LLMPROF_SENTENCES_(table_name, table_doc, FIELDS)                     \
  };
