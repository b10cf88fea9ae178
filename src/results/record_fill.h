// A whole record, with its lists and the records inside it, from the JSON that was written of it (base/record_json.h).
// Files are anyone's: a value of another type is refused, not guessed at, and so is a number that is missing where the
// declaration always has one. Single fields of small files: record_reader.h.
//
// How many values an enum has is asked of EnumEnd.
#pragma once

#include <cmath>
#include <limits>
#include <string>

#include "base/json_document.h"
#include "base/record_visitor.h"
#include "results/values.h"

namespace llmprof {

template <class E>
struct EnumEnd {
  static constexpr size_t kValue = static_cast<size_t>(E::kCount);
};

class RecordFiller {
 public:
  // Where the first value stands that does not fit: "stages.wall_ms"; empty where all of them did.
  const std::string& wrong() const { return wrong_; }

  template <class Record>
  void fill(JsonValue object, Record& record) {
    if (!object.is_object()) return fail_at("");
    record.for_each_field([&](const FieldInfo& field, auto& value) {
      if (!wrong_.empty()) return;
      const std::optional<JsonValue> there = object.find(field.name);
      if (!there) {
        if (!may_miss(value)) fail_at(field.name);
        return;
      }
      const size_t before = path_.size();
      path_ += (path_.empty() ? "" : ".") + std::string(field.name);
      read(*there, value);
      path_.resize(before);
    });
  }

 private:
  template <class T>
  static constexpr bool may_miss(const T&) {
    using namespace record_types;
    return kIs<T, IfKnown> || kIs<T, IfAny> || kIs<T, std::optional> || kIs<T, NamedRow> || kIsList<T> || kIsNamed<T>;
  }

  void fail_at(std::string_view name) {
    if (!wrong_.empty()) return;
    wrong_ = path_;
    if (!name.empty()) wrong_ += (path_.empty() ? "" : ".") + std::string(name);
    if (wrong_.empty()) wrong_ = "the record itself";
  }

  template <class Scalar, class T>
  void take(const std::optional<Scalar>& known, T& value) {
    if (!known) return fail_at("");
    value = T(*known);
  }

  void read(JsonValue json, Milliseconds& value) {
    const std::optional<double> ms = json.number();
    if (!ms || std::fabs(*ms) > 1e12) return fail_at("");
    value.ns = std::llround(*ms * 1e6);
  }
  void read(JsonValue json, KnownMilliseconds& value) {
    value.known = !json.is_null();
    Milliseconds ms;
    if (value.known) read(json, ms);
    value.ns = ms.ns;
  }
  void read(JsonValue json, KnownCount& value) {
    value.known = !json.is_null();
    if (value.known) take(json.integer(), value.n);
  }
  void read(JsonValue json, Count& value) { take(json.number(), value.value); }

  template <class T>
  void read(JsonValue json, T& value) {
    using namespace record_types;
    if constexpr (kIs<T, IfAny>) {
      read(json, static_cast<typename T::Plain&>(value));
    } else if constexpr (kIs<T, std::optional> || kIs<T, IfKnown> || kIs<T, NamedRow>) {
      if (!json.is_null()) read(json, value.emplace());
    } else if constexpr (IsRecord<T>) {
      fill(json, value);
    } else if constexpr (kIsNamed<T>) {
      if (!json.is_object()) return fail_at("");
      for (const JsonMember member : json.members()) {
        auto& [name, entry] = value.emplace_back();
        name = std::string(member.name);
        read(member.value, entry);
      }
    } else if constexpr (kIs<T, std::vector>) {
      if (!json.is_array()) return fail_at("");
      value.reserve(json.size());
      for (const JsonValue entry : json.entries()) read(entry, value.emplace_back());
    } else if constexpr (kIsList<T>) {
      if (!json.is_array() || json.size() != value.size()) return fail_at("");
      size_t i = 0;
      for (const JsonValue entry : json.entries()) read(entry, value[i++]);
    } else if constexpr (std::is_enum_v<T>) {
      const std::optional<std::string_view> text = json.text();
      for (size_t i = 0; text && i < EnumEnd<T>::kValue; ++i)
        if (name_of(static_cast<T>(i)) == *text) return void(value = static_cast<T>(i));
      fail_at("");
    } else if constexpr (std::is_same_v<T, bool>) {
      take(json.boolean(), value);
    } else if constexpr (std::is_integral_v<T>) {
      take(json.integer(), value);
    } else if constexpr (std::is_floating_point_v<T>) {
      // JSON has no number that is none.
      if (json.is_null()) return void(value = std::numeric_limits<T>::quiet_NaN());
      take(json.number(), value);
    } else {
      take(json.text(), value);
    }
  }

  std::string path_, wrong_;
};

}  // namespace llmprof
