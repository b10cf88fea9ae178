#include "base/json_document.h"

#include <cstring>
#include <nlohmann/json.hpp>

namespace llmprof {
namespace {

template <class T>
T from_bits(uint64_t bits) {
  T value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
template <class T>
uint64_t to_bits(T value) {
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  return bits;
}

// The library writes "[id] parse error at line 2, column 2: syntax error while parsing object - unexpected string
// literal; expected '}'"; of that, in our order: what was expected, what was found, where.
std::string sentence(std::string_view text) {
  const auto cut = [&](std::string_view mark) {
    const size_t at = text.find(mark);
    if (at != std::string_view::npos) text.remove_prefix(at + mark.size());
    return at != std::string_view::npos;
  };
  cut("] ");
  std::string where;
  if (cut("parse error at ")) {
    const size_t colon = std::min(text.find(": "), text.size());
    where = " at " + std::string(text.substr(0, colon));
    text.remove_prefix(std::min(colon + 2, text.size()));
  }
  cut("syntax error while ");
  const size_t dash = text.find(" - ");
  if (dash == std::string_view::npos) return std::string(text) + where;
  where = " while " + std::string(text.substr(0, dash)) + where;
  text.remove_prefix(dash + 3);
  constexpr std::string_view kFound = "unexpected ", kExpected = "; expected ";
  const size_t expected = text.rfind(kExpected);
  if (!text.starts_with(kFound) || expected == std::string_view::npos)
    return "expected JSON, found " + std::string(text) + where;
  return "expected " + std::string(text.substr(expected + kExpected.size())) + ", found " +
         std::string(text.substr(kFound.size(), expected - kFound.size())) + where;
}

}  // namespace

// Takes the events of nlohmann's reader, which does not recurse, checks UTF-8 and is as strict as RFC 8259 is.
class JsonBuilder {
 public:
  bool null() { return add(JsonKind::kNull); }
  bool boolean(bool value) { return add(JsonKind::kBool, value ? 1 : 0); }
  bool number_integer(int64_t value) { return add(JsonKind::kInteger, to_bits(value)); }
  bool number_unsigned(uint64_t value) {
    return add(value > INT64_MAX ? JsonKind::kNatural : JsonKind::kInteger, value);
  }
  bool number_float(double value, const std::string&) { return add(JsonKind::kReal, to_bits(value)); }
  bool string(const std::string& value) { return count() && push_text(value); }
  bool key(const std::string& value) {
    if (!count() || !push_text(value)) return false;
    keyed_ = true;
    return true;
  }
  bool binary(const std::vector<uint8_t>&) { return failed("expected text, found binary data"); }
  bool start_object(size_t) { return open(JsonKind::kObject); }
  bool start_array(size_t) { return open(JsonKind::kArray); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception& cause) {
    return failed(sentence(cause.what()));
  }

  JsonDocument document;
  std::string error;

 private:
  bool failed(std::string what) {
    error = std::move(what);
    return false;
  }

  // One more entry in what is open. A member counts at its key, so its value does not count again.
  bool count() {
    if (keyed_ || open_.empty()) {
      keyed_ = false;
      return true;
    }
    JsonNode& parent = document.nodes_[open_.back()];
    if (parent.length == UINT32_MAX) return failed("expected at most 4294967295 entries in one value, found more");
    ++parent.length;
    return true;
  }

  bool add(JsonKind kind, uint64_t bits = 0, uint32_t length = 0) {
    if (!count()) return false;
    push(kind, bits, length);
    return true;
  }

  void push(JsonKind kind, uint64_t bits, uint32_t length) {
    document.nodes_.push_back({kind, length, bits, document.nodes_.size() + 1});
  }

  bool push_text(const std::string& value) {
    if (value.size() > UINT32_MAX) return failed("expected a text of at most 4 GiB, found more");
    push(JsonKind::kText, document.bytes_.size(), static_cast<uint32_t>(value.size()));
    document.bytes_ += value;
    return true;
  }

  bool open(JsonKind kind) {
    if (open_.size() == kJsonDepthMax)
      return failed("expected at most " + std::to_string(kJsonDepthMax) + " levels of nesting, found more");
    if (!add(kind)) return false;
    open_.push_back(document.nodes_.size() - 1);
    return true;
  }

  bool close() {
    document.nodes_[open_.back()].end = document.nodes_.size();
    open_.pop_back();
    return true;
  }

  std::vector<size_t> open_;  // nodes of the arrays and objects that are not closed yet
  bool keyed_ = false;        // the last event was a key
};

Result<JsonDocument> JsonDocument::parse(std::string_view text) {
  JsonBuilder builder;
  // The reader takes a byte of 0 for the end of the text, and would not see what stands behind it.
  if (const size_t at = text.find('\0'); at != std::string_view::npos)
    return fail("expected JSON, found a byte of 0 at byte " + std::to_string(at));
  // Also false where the reader ends without an event that says why; it has none for that today.
  if (!nlohmann::json::sax_parse(text.begin(), text.end(), &builder))
    return fail(builder.error.empty() ? std::string("expected JSON") : std::move(builder.error));
  return std::move(builder.document);
}

JsonValue JsonDocument::root() const { return nodes_.empty() ? JsonValue() : JsonValue(this, 0); }

std::optional<bool> JsonValue::boolean() const {
  return kind() == JsonKind::kBool ? std::optional(node().bits != 0) : std::nullopt;
}

std::optional<int64_t> JsonValue::integer() const {
  return kind() == JsonKind::kInteger ? std::optional(from_bits<int64_t>(node().bits)) : std::nullopt;
}

std::optional<uint64_t> JsonValue::natural() const {
  if (kind() == JsonKind::kNatural) return node().bits;
  const std::optional<int64_t> whole = integer();
  return whole && *whole >= 0 ? std::optional(static_cast<uint64_t>(*whole)) : std::nullopt;
}

std::optional<double> JsonValue::number() const {
  if (kind() == JsonKind::kReal) return from_bits<double>(node().bits);
  if (kind() == JsonKind::kNatural) return static_cast<double>(node().bits);
  const std::optional<int64_t> whole = integer();
  return whole ? std::optional(static_cast<double>(*whole)) : std::nullopt;
}

std::optional<std::string_view> JsonValue::text() const {
  if (kind() != JsonKind::kText) return std::nullopt;
  return std::string_view(document_->bytes_).substr(node().bits, node().length);
}

size_t JsonValue::size() const { return is_array() || is_object() ? node().length : 0; }

std::optional<JsonValue> JsonValue::find(std::string_view name) const {
  for (const JsonMember member : members())
    if (member.name == name) return member.value;
  return std::nullopt;
}

JsonValue::Entries JsonValue::entries() const {
  return is_array() ? Entries(document_, at_ + 1, node().end) : Entries(nullptr, 0, 0);
}

JsonValue::Members JsonValue::members() const {
  return is_object() ? Members(document_, at_ + 1, node().end) : Members(nullptr, 0, 0);
}

}  // namespace llmprof
