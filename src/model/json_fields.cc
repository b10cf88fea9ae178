#include "model/json_fields.h"

#include <fmt/format.h>

#include <cmath>

namespace llmprof {
namespace {

constexpr size_t kMaxText = 256;

// What an element is, for the "found" part of an error.
std::string describe(const simdjson::dom::element& element) {
  using simdjson::dom::element_type;
  switch (element.type()) {
    case element_type::ARRAY:
      return "a list";
    case element_type::OBJECT:
      return "an object";
    case element_type::STRING:
      return "a text";
    case element_type::BOOL:
      return bool(element.get<bool>().value_unsafe()) ? "true" : "false";
    case element_type::INT64:
      return fmt::format("{}", element.get<int64_t>().value_unsafe());
    case element_type::UINT64:
      return fmt::format("{}", element.get<uint64_t>().value_unsafe());
    case element_type::DOUBLE:
      return fmt::format("{}", element.get<double>().value_unsafe());
    case element_type::NULL_VALUE:
      break;
  }
  return "null";
}

// Python writes 4096.0 for 4096 now and then; other fractions are no integers.
std::optional<int64_t> as_integer(const simdjson::dom::element& element) {
  int64_t whole = 0;
  if (element.get(whole) == simdjson::SUCCESS) return whole;
  double number = 0;
  if (element.is<double>() && element.get(number) == simdjson::SUCCESS && number == std::floor(number) &&
      std::fabs(number) < 9e15)
    return static_cast<int64_t>(number);
  return std::nullopt;
}

}  // namespace

std::optional<simdjson::dom::element> JsonFields::find(std::string_view name) const {
  simdjson::dom::element element;
  if (object_.at_key(name).get(element) != simdjson::SUCCESS || element.is_null()) return std::nullopt;
  return element;
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
  const std::optional<simdjson::dom::element> element = find(name);
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
  const std::optional<simdjson::dom::element> element = find(name);
  if (!element) return fallback;
  bool flag = false;
  if (element->get(flag) != simdjson::SUCCESS) return wrong(name, "true or false", describe(*element));
  return flag;
}

Result<std::string> JsonFields::string_or(std::string_view name, std::string_view fallback) const {
  const std::optional<simdjson::dom::element> element = find(name);
  if (!element) return std::string(fallback);
  std::string_view text;
  if (element->get(text) != simdjson::SUCCESS) return wrong(name, "a text", describe(*element));
  if (text.size() > kMaxText)
    return wrong(name, fmt::format("a text of at most {} bytes", kMaxText), fmt::format("{} bytes", text.size()));
  return std::string(text);
}

Result<std::optional<JsonFields>> JsonFields::object(std::string_view name) const {
  const std::optional<simdjson::dom::element> element = find(name);
  if (!element) return std::optional<JsonFields>();
  simdjson::dom::object nested;
  if (element->get(nested) != simdjson::SUCCESS) return wrong(name, "an object", describe(*element));
  return std::optional<JsonFields>(JsonFields(nested, origin_, full_name(name) + "."));
}

Result<std::optional<std::vector<std::string>>> JsonFields::strings(std::string_view name, size_t limit) const {
  const std::optional<simdjson::dom::element> element = find(name);
  if (!element) return std::optional<std::vector<std::string>>();
  simdjson::dom::array list;
  if (element->get(list) != simdjson::SUCCESS) return wrong(name, "a list of texts", describe(*element));
  std::vector<std::string> out;
  for (const simdjson::dom::element entry : list) {
    std::string_view text;
    if (entry.get(text) != simdjson::SUCCESS) return wrong(name, "a list of texts", "a list with " + describe(entry));
    if (out.size() == limit)
      return wrong(name, fmt::format("a list of at most {} texts", limit), fmt::format("more than {}", limit));
    out.emplace_back(text.substr(0, kMaxText));
  }
  return std::optional<std::vector<std::string>>(std::move(out));
}

Result<std::optional<std::vector<int64_t>>> JsonFields::integers(std::string_view name, size_t limit) const {
  const std::optional<simdjson::dom::element> element = find(name);
  if (!element) return std::optional<std::vector<int64_t>>();
  simdjson::dom::array list;
  if (element->get(list) != simdjson::SUCCESS) return wrong(name, "a list of whole numbers", describe(*element));
  std::vector<int64_t> out;
  for (const simdjson::dom::element entry : list) {
    const std::optional<int64_t> number = as_integer(entry);
    if (!number) return wrong(name, "a list of whole numbers", "a list with " + describe(entry));
    if (out.size() == limit)
      return wrong(name, fmt::format("a list of at most {} numbers", limit), fmt::format("more than {}", limit));
    out.push_back(*number);
  }
  return std::optional<std::vector<int64_t>>(std::move(out));
}

}  // namespace llmprof
