#include "model/json_fields.h"

#include <fmt/format.h>

#include <cmath>

namespace llmprof {
namespace {

constexpr size_t kMaxText = 256;

// What a value is, for the "found" part of an error.
std::string describe(JsonValue value) {
  switch (value.kind()) {
    case JsonKind::kArray:
      return "a list";
    case JsonKind::kObject:
      return "an object";
    case JsonKind::kText:
      return "a text";
    case JsonKind::kBool:
      return value.boolean().value_or(false) ? "true" : "false";
    case JsonKind::kInteger:
      return fmt::format("{}", value.integer().value_or(0));
    case JsonKind::kNatural:
      return fmt::format("{}", value.natural().value_or(0));
    case JsonKind::kReal:
      return fmt::format("{}", value.number().value_or(0));
    case JsonKind::kNull:
      break;
  }
  return "null";
}

// Python writes 4096.0 for 4096 now and then; other fractions are no integers.
std::optional<int64_t> as_integer(JsonValue value) {
  if (const std::optional<int64_t> whole = value.integer()) return whole;
  if (value.kind() != JsonKind::kReal) return std::nullopt;
  const double number = value.number().value_or(0);
  if (number == std::floor(number) && std::fabs(number) < 9e15) return static_cast<int64_t>(number);
  return std::nullopt;
}

}  // namespace

std::optional<JsonValue> JsonFields::find(std::string_view name) const {
  const std::optional<JsonValue> value = object_.find(name);
  return value && !value->is_null() ? value : std::nullopt;
}

tl::unexpected<Error> JsonFields::missing(std::string_view name) const {
  return fail(fmt::format("the model's config lacks the field \"{}\"", full_name(name)), origin_,
              "use the config.json that belongs to the weights, or add the field");
}

tl::unexpected<Error> JsonFields::wrong(std::string_view name, std::string_view expected,
                                        std::string_view found) const {
  return fail(fmt::format("field \"{}\": expected {}, found {}", full_name(name), expected, found), origin_,
              "correct the field, or use the config.json that belongs to the weights");
}

Result<int64_t> JsonFields::integer(std::string_view name, int64_t low, int64_t high) const {
  const std::optional<JsonValue> element = find(name);
  if (!element) {
    for (const FieldDefault& known : defaults_)
      if (known.name == name) return known.value;
    return missing(name);
  }
  const std::optional<int64_t> number = as_integer(*element);
  if (!number || *number < low || *number > high)
    return wrong(name, fmt::format("a whole number from {} to {}", low, high), describe(*element));
  return *number;
}

Result<int64_t> JsonFields::integer_or(std::string_view name, int64_t low, int64_t high, int64_t fallback) const {
  for (const FieldDefault& known : defaults_)
    if (known.name == name) return integer(name, low, high);
  return has(name) ? integer(name, low, high) : Result<int64_t>(fallback);
}

Result<bool> JsonFields::boolean_or(std::string_view name, bool fallback) const {
  const std::optional<JsonValue> element = find(name);
  if (!element) return fallback;
  bool flag = false;
  if (!element->read(flag)) return wrong(name, "true or false", describe(*element));
  return flag;
}

Result<std::string> JsonFields::string_or(std::string_view name, std::string_view fallback) const {
  const std::optional<JsonValue> element = find(name);
  if (!element) return std::string(fallback);
  std::string_view text;
  if (!element->read(text)) return wrong(name, "a text", describe(*element));
  if (text.size() > kMaxText)
    return wrong(name, fmt::format("a text of at most {} bytes", kMaxText), fmt::format("{} bytes", text.size()));
  return std::string(text);
}

Result<std::optional<JsonFields>> JsonFields::object(std::string_view name) const {
  const std::optional<JsonValue> element = find(name);
  if (!element) return std::optional<JsonFields>();
  if (!element->is_object()) return wrong(name, "an object", describe(*element));
  return std::optional<JsonFields>(JsonFields(*element, origin_, full_name(name) + "."));
}

Result<std::optional<std::vector<std::string>>> JsonFields::strings(std::string_view name, size_t limit) const {
  const std::optional<JsonValue> element = find(name);
  if (!element) return std::optional<std::vector<std::string>>();
  if (!element->is_array()) return wrong(name, "a list of texts", describe(*element));
  std::vector<std::string> out;
  for (const JsonValue entry : element->entries()) {
    std::string_view text;
    if (!entry.read(text)) return wrong(name, "a list of texts", "a list with " + describe(entry));
    if (out.size() == limit)
      return wrong(name, fmt::format("a list of at most {} texts", limit), fmt::format("more than {}", limit));
    out.emplace_back(text.substr(0, kMaxText));
  }
  return std::optional<std::vector<std::string>>(std::move(out));
}

Result<std::optional<std::vector<int64_t>>> JsonFields::integers(std::string_view name, size_t limit) const {
  const std::optional<JsonValue> element = find(name);
  if (!element) return std::optional<std::vector<int64_t>>();
  if (!element->is_array()) return wrong(name, "a list of whole numbers", describe(*element));
  std::vector<int64_t> out;
  for (const JsonValue entry : element->entries()) {
    const std::optional<int64_t> number = as_integer(entry);
    if (!number) return wrong(name, "a list of whole numbers", "a list with " + describe(entry));
    if (out.size() == limit)
      return wrong(name, fmt::format("a list of at most {} numbers", limit), fmt::format("more than {}", limit));
    out.push_back(*number);
  }
  return std::optional<std::vector<int64_t>>(std::move(out));
}

}  // namespace llmprof
