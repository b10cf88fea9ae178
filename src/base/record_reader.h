// Records (base/fields.h) read again from the JSON that was written of them, field by field, by their types. Files are
// anyone's: texts are bounded, and a value of another type is refused, not guessed at.
#pragma once

#include <string>

#include "base/json_document.h"
#include "base/record_visitor.h"

namespace llmprof {

// A field that records have had since some version: files of earlier ones do not have it.
template <class T>
struct Added {
  T value{};
  Added() = default;
  Added(T known) : value(std::move(known)) {}
  operator const T&() const { return value; }
  Scalar scalar() const { return record_types::scalar_of(value); }
};

// Which fields may be missing: those of type Added and std::optional, or all.
enum class Missing : uint8_t { kUnknown, kAny };

class RecordReader {
 public:
  RecordReader(JsonValue object, size_t text_bytes_max, Missing missing = Missing::kUnknown)
      : object_(object), text_bytes_max_(text_bytes_max), missing_(missing) {}

  // The first field that is missing or of another type; empty if there is none.
  const std::string& wrong() const { return wrong_; }

  // As the visitor of for_each_field. Lists are left to the caller.
  template <class T>
  void operator()(const FieldInfo& field, T& value) {
    if (!wrong_.empty()) return;
    const std::optional<JsonValue> there = object_.find(field.name);
    const bool may_miss =
        missing_ == Missing::kAny || record_types::kIs<T, Added> || record_types::kIs<T, std::optional>;
    if (there ? !read(*there, value) : !may_miss) wrong_ = field.name;
  }

 private:
  template <class T>
  bool read(JsonValue json, T& value) const {
    if constexpr (record_types::kIs<T, Added>) {
      return read(json, value.value);
    } else if constexpr (record_types::kIs<T, std::optional>) {
      if (json.is_null()) return true;
      return read(json, value.emplace());
    } else if constexpr (std::is_enum_v<T>) {
      const std::optional<std::string_view> text = json.text();
      for (size_t i = 0; text && i < static_cast<size_t>(T::kCount); ++i)
        if (name_of(static_cast<T>(i)) == *text) return value = static_cast<T>(i), true;
      return false;
    } else if constexpr (std::is_base_of_v<std::string, T>) {
      const std::optional<std::string_view> text = json.text();
      if (!text || text->size() > text_bytes_max_) return false;
      value = T(*text);
      return true;
    } else {
      return json.read(value);
    }
  }

  JsonValue object_;
  size_t text_bytes_max_;
  Missing missing_;
  std::string wrong_;
};

}  // namespace llmprof
