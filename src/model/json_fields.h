// Typed, bounded access to the fields of one JSON object, with errors that name the field, the file and what to do.
// Inside the model room only.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_document.h"
#include "base/result.h"

namespace llmprof {

// What the reference implementation takes for an integer that a config leaves out. Nested configs are saved without the
// fields that equal the default of their class, so for them an absent field is known.
struct FieldDefault {
  std::string_view name;
  int64_t value;
};

class JsonFields {
 public:
  // `path` is put before field names in errors: "" or "text_config.".
  JsonFields(JsonValue object, std::string origin, std::string path = {})
      : object_(object), origin_(std::move(origin)), path_(std::move(path)) {}

  void set_defaults(std::span<const FieldDefault> defaults) { defaults_ = defaults; }

  // The element of that name, unless it is absent or null.
  std::optional<JsonValue> find(std::string_view name) const;
  bool has(std::string_view name) const { return find(name).has_value(); }
  // Whether the object names it at all: for some fields null means none and absence means a default.
  bool names(std::string_view name) const { return object_.find(name).has_value(); }

  // An integer in [low, high]. A missing field is an error, or `fallback` where one is given.
  Result<int64_t> integer(std::string_view name, int64_t low, int64_t high) const;
  Result<int64_t> integer_or(std::string_view name, int64_t low, int64_t high, int64_t fallback) const;
  Result<bool> boolean_or(std::string_view name, bool fallback) const;
  // At most 256 characters.
  Result<std::string> string_or(std::string_view name, std::string_view fallback) const;
  // A nested object, or nothing where it is absent or null.
  Result<std::optional<JsonFields>> object(std::string_view name) const;
  // A list of strings or integers; absent gives nothing. At most `limit` entries.
  Result<std::optional<std::vector<std::string>>> strings(std::string_view name, size_t limit) const;
  Result<std::optional<std::vector<int64_t>>> integers(std::string_view name, size_t limit) const;

  const std::string& origin() const { return origin_; }
  std::string full_name(std::string_view name) const { return path_ + std::string(name); }
  tl::unexpected<Error> missing(std::string_view name) const;
  tl::unexpected<Error> wrong(std::string_view name, std::string_view expected, std::string_view found) const;

 private:
  JsonValue object_;
  std::string origin_;
  std::string path_;
  std::span<const FieldDefault> defaults_;
};

}  // namespace llmprof
