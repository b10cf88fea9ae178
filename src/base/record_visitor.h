// Records (base/fields.h) seen without knowing their types: what a format sees of a result. visit() tells a visitor the
// fields in the order of their declaration, each by the type it has:
//
//   texts, numbers, bool, enums with name_of(), types with scalar()   value()
//   std::optional of these                                            value(), std::monostate where it is not known
//   a record                                                          enter(kRecord), its fields, leave()
//   std::optional of a record                                         the same, or unknown()
//   std::vector of records                                            enter(kRows), each as a record without name,
//   leave() std::vector or std::array of values; std::optional of one         enter(kTexts or kNumbers), values,
//   leave() Named<Record>, std::map of records                                enter(kNamed), each as a record by its
//   name, leave() OneRow<Record>, NamedRow<Record>                                  a record, one that may be unknown;
//   of tables as said below IfKnown<T>                                                        as T, or left_out()
//
// A format is one visitor, and has every result; a result is one declaration, and has every format.
#pragma once

#include <array>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "base/fields.h"

namespace llmprof {

// std::monostate: not known.
using Scalar = std::variant<std::monostate, bool, int64_t, double, std::string_view>;

// ---- types of fields that say how a value is shown

// A text that names the row to which rows of tables inside it belong: a finding's evidence begins with its id.
struct KeyText : std::string {
  KeyText() = default;
  KeyText(std::string text) : std::string(std::move(text)) {}
  KeyText(std::string_view text) : std::string(text) {}
  KeyText(const char* text) : std::string(text) {}
};

// A count that may be too large for an integer: whole while it is exact.
struct Count {
  double value = 0;
  operator double() const { return value; }
  Scalar scalar() const {
    constexpr double kExactLimit = 9007199254740992.0;  // 2^53
    if (value == std::floor(value) && std::fabs(value) < kExactLimit) return static_cast<int64_t>(value);
    return value;
  }
};

// Left out where it is not known: the key is not there.
template <class T>
struct IfKnown : std::optional<T> {
  using std::optional<T>::optional;
  IfKnown(std::optional<T> known) : std::optional<T>(std::move(known)) {}
};

// A text or list that is left out where it is empty.
template <class T>
struct IfAny : T {
  using Plain = T;
  using T::T;
  using T::operator=;
  IfAny() = default;
  IfAny(T plain) : T(std::move(plain)) {}
};

// A record that is a table of one row where there are tables.
template <class Record>
struct OneRow : Record {
  OneRow() = default;
  OneRow(Record record) : Record(std::move(record)) {}
};
// One that is a row, under the field's name, of a table that is called as the enclosing record is.
template <class Record>
struct NamedRow : std::optional<Record> {
  using std::optional<Record>::optional;
  NamedRow(std::optional<Record> known) : std::optional<Record>(std::move(known)) {}
};

// Records by name, in order. In JSON an object.
template <class Record>
struct Named : std::vector<std::pair<std::string, Record>> {};

// ---- the visitor

class RecordVisitor;

struct RecordShape {
  TableInfo info;
  void (*visit_empty)(RecordVisitor&) = nullptr;  // the fields of a record without values: which there are
};

enum class Nest : uint8_t { kRecord, kOneRow, kNamedRow, kRows, kNamed, kTexts, kNumbers };

class RecordVisitor {
 public:
  RecordVisitor() = default;
  RecordVisitor(const RecordVisitor&) = delete;
  RecordVisitor& operator=(const RecordVisitor&) = delete;
  virtual ~RecordVisitor() = default;

  // Inside lists the field has no name.
  virtual void value(const FieldInfo& field, const Scalar& value) = 0;
  virtual void key(const FieldInfo& field, std::string_view text) { value(field, text); }  // a KeyText
  // `shape` is that of the record or of the rows, empty for lists of values.
  virtual void enter(Nest nest, const FieldInfo& field, const RecordShape& shape) = 0;
  virtual void leave() = 0;
  virtual void unknown(Nest nest, const FieldInfo& field, const RecordShape& shape) = 0;  // a record
  virtual void left_out(Nest, const FieldInfo&, const RecordShape&) {}
};

template <class Record>
void visit(const Record& record, RecordVisitor& visitor);

template <class Record>
RecordShape shape_of() {
  return {Record::info(), [](RecordVisitor& visitor) { visit(Record{}, visitor); }};
}

namespace record_types {

template <class T>
concept IsRecord = requires {
  { T::info() } -> std::same_as<TableInfo>;
};
template <class T>
concept HasScalar = requires(const T& value) {
  { value.scalar() } -> std::same_as<Scalar>;
};

template <class T, template <class...> class Template>
constexpr bool kIs = false;
template <template <class...> class Template, class... Parts>
constexpr bool kIs<Template<Parts...>, Template> = true;

template <class T>
constexpr bool kIsNamed = kIs<T, Named> || kIs<T, std::map>;
template <class T>
constexpr bool kIsList = kIs<T, std::vector>;
template <class T, size_t n>
constexpr bool kIsList<std::array<T, n>> = true;

template <class T>
Scalar scalar_of(const T& value) {
  if constexpr (HasScalar<T>) {
    return value.scalar();
  } else if constexpr (std::is_enum_v<T>) {
    return std::string_view(name_of(value));
  } else if constexpr (std::is_same_v<T, bool>) {
    return value;
  } else if constexpr (std::is_integral_v<T>) {
    return static_cast<int64_t>(value);
  } else if constexpr (std::is_floating_point_v<T>) {
    return static_cast<double>(value);
  } else {
    return std::string_view(value);
  }
}

template <class T>
constexpr Nest nest_of() {
  if constexpr (kIs<T, OneRow>) {
    return Nest::kOneRow;
  } else if constexpr (IsRecord<T>) {
    return Nest::kRecord;
  } else if constexpr (kIs<T, NamedRow>) {
    return Nest::kNamedRow;
  } else if constexpr (kIsNamed<T>) {
    return Nest::kNamed;
  } else if constexpr (kIsList<T>) {
    using Entry = typename T::value_type;
    return IsRecord<Entry> ? Nest::kRows : std::is_arithmetic_v<Entry> ? Nest::kNumbers : Nest::kTexts;
  } else if constexpr (kIs<T, std::optional>) {
    return nest_of<typename T::value_type>();
  } else {
    return Nest::kTexts;
  }
}

template <class T>
RecordShape shape_inside() {
  if constexpr (IsRecord<T>) {
    return shape_of<T>();
  } else if constexpr (kIsNamed<T>) {
    return shape_of<typename T::value_type::second_type>();
  } else if constexpr (requires { typename T::value_type; } && !std::is_convertible_v<T, std::string_view>) {
    return shape_inside<typename T::value_type>();
  } else {
    return {};
  }
}

template <class T>
void visit_field(const FieldInfo& field, const T& value, RecordVisitor& visitor) {
  if constexpr (IsRecord<T>) {
    visitor.enter(nest_of<T>(), field, shape_of<T>());
    visit(value, visitor);
    visitor.leave();
  } else if constexpr (std::is_same_v<T, KeyText>) {
    visitor.key(field, value);
  } else if constexpr (kIs<T, IfKnown>) {
    if (value) return visit_field(field, *value, visitor);
    visitor.left_out(nest_of<typename T::value_type>(), field, shape_inside<T>());
  } else if constexpr (kIs<T, IfAny>) {
    if (!value.empty()) return visit_field(field, static_cast<const typename T::Plain&>(value), visitor);
    visitor.left_out(nest_of<typename T::Plain>(), field, shape_inside<typename T::Plain>());
  } else if constexpr (kIs<T, NamedRow>) {
    if (!value) return visitor.unknown(nest_of<T>(), field, shape_inside<T>());
    visitor.enter(nest_of<T>(), field, shape_inside<T>());
    visit(*value, visitor);
    visitor.leave();
  } else if constexpr (kIs<T, std::optional>) {
    if (value) return visit_field(field, *value, visitor);
    if constexpr (IsRecord<typename T::value_type>) {
      visitor.unknown(Nest::kRecord, field, shape_inside<T>());
    } else {
      visitor.value(field, std::monostate());
    }
  } else if constexpr (kIsNamed<T>) {
    visitor.enter(Nest::kNamed, field, shape_inside<T>());
    for (const auto& [name, entry] : value) visit_field(FieldInfo{name, {}, {}}, entry, visitor);
    visitor.leave();
  } else if constexpr (kIsList<T>) {
    visitor.enter(nest_of<T>(), field, shape_inside<T>());
    for (const typename T::value_type& entry : value) visit_field(FieldInfo{}, entry, visitor);
    visitor.leave();
  } else {
    visitor.value(field, scalar_of(value));
  }
}

}  // namespace record_types

// The fields; the record itself is not entered.
template <class Record>
void visit(const Record& record, RecordVisitor& visitor) {
  record.for_each_field(
      [&](const FieldInfo& field, const auto& value) { record_types::visit_field(field, value, visitor); });
}

}  // namespace llmprof
