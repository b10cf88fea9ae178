// A JSON text of moderate size, read whole: configs, metadata, directories of files, results. (Recordings have a
// scanner of their own, import/json_scan.h.) Read by nlohmann's parser, kept in two vectors. Strict as RFC 8259 is, and
// bounded: nesting is limited and never recursed into, and memory is in proportion to the text. Of equal keys of an
// object the first counts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace llmprof {

enum class JsonKind : uint8_t { kNull, kBool, kInteger, kNatural, kReal, kText, kArray, kObject };

constexpr size_t kJsonDepthMax = 1024;

class JsonValue;
struct JsonMember;

// Values stand in the order of the text, each followed by what is inside it; a member of an object is its key (a text)
// and then its value.
struct JsonNode {
  JsonKind kind = JsonKind::kNull;
  uint32_t length = 0;  // of a text; of an array or object: entries
  uint64_t bits = 0;    // a bool, the bits of a number, where a text starts in the document's bytes
  uint64_t end = 0;     // index behind the last node inside
};

class JsonDocument {
 public:
  // The error says what was expected and what was found, at which line and column; the caller adds which file.
  static Result<JsonDocument> parse(std::string_view text);

  JsonValue root() const;

 private:
  friend class JsonValue;
  friend class JsonBuilder;
  std::vector<JsonNode> nodes_;
  std::string bytes_;  // of all texts, escapes replaced
};

// A value of a document, which must outlive it. Cheap to copy. Without a document it is null.
class JsonValue {
 public:
  JsonValue() = default;

  JsonKind kind() const { return document_ != nullptr ? node().kind : JsonKind::kNull; }
  bool is_null() const { return kind() == JsonKind::kNull; }
  bool is_array() const { return kind() == JsonKind::kArray; }
  bool is_object() const { return kind() == JsonKind::kObject; }

  // The value if it is of that type, else nothing. Whole numbers are those written without point and exponent.
  std::optional<bool> boolean() const;
  std::optional<int64_t> integer() const;
  std::optional<uint64_t> natural() const;
  std::optional<double> number() const;  // any number, always finite
  std::optional<std::string_view> text() const;

  // The same for callers that fill a variable; it stays as it is where false is returned.
  bool read(bool& out) const { return take(boolean(), out); }
  bool read(int64_t& out) const { return take(integer(), out); }
  bool read(uint64_t& out) const { return take(natural(), out); }
  bool read(double& out) const { return take(number(), out); }
  bool read(std::string_view& out) const { return take(text(), out); }

  size_t size() const;  // entries of an array or object, else 0
  // Of an object, the member's value; nothing where there is none, and for what is no object.
  std::optional<JsonValue> find(std::string_view name) const;
  // The member's value, null if there is none.
  JsonValue operator[](std::string_view name) const { return find(name).value_or(JsonValue()); }

  // for (JsonValue entry : array.entries()), for (JsonMember member : object.members()); empty for other kinds.
  class Entries;
  class Members;
  Entries entries() const;
  Members members() const;

 private:
  friend class JsonDocument;
  JsonValue(const JsonDocument* document, size_t at) : document_(document), at_(at) {}
  const JsonNode& node() const { return document_->nodes_[at_]; }
  template <class T>
  static bool take(const std::optional<T>& value, T& out) {
    if (value) out = *value;
    return value.has_value();
  }

  const JsonDocument* document_ = nullptr;
  size_t at_ = 0;
};

struct JsonMember {
  std::string_view name;
  JsonValue value;
};

class JsonValue::Entries {
 public:
  class Iterator {
   public:
    Iterator(const JsonDocument* document, size_t at) : document_(document), at_(at) {}
    JsonValue operator*() const { return JsonValue(document_, at_); }
    Iterator& operator++() {
      at_ = document_->nodes_[at_].end;
      return *this;
    }
    bool operator!=(const Iterator& other) const { return at_ != other.at_; }

   private:
    const JsonDocument* document_;
    size_t at_;
  };
  Iterator begin() const { return {document_, from_}; }
  Iterator end() const { return {document_, to_}; }

 private:
  friend class JsonValue;
  Entries(const JsonDocument* document, size_t from, size_t to) : document_(document), from_(from), to_(to) {}
  const JsonDocument* document_;
  size_t from_, to_;
};

class JsonValue::Members {
 public:
  class Iterator {
   public:
    Iterator(const JsonDocument* document, size_t at) : document_(document), at_(at) {}
    JsonMember operator*() const {
      return {JsonValue(document_, at_).text().value_or(std::string_view()), JsonValue(document_, at_ + 1)};
    }
    Iterator& operator++() {
      at_ = document_->nodes_[at_ + 1].end;
      return *this;
    }
    bool operator!=(const Iterator& other) const { return at_ != other.at_; }

   private:
    const JsonDocument* document_;
    size_t at_;
  };
  Iterator begin() const { return {document_, from_}; }
  Iterator end() const { return {document_, to_}; }

 private:
  friend class JsonValue;
  Members(const JsonDocument* document, size_t from, size_t to) : document_(document), from_(from), to_(to) {}
  const JsonDocument* document_;
  size_t from_, to_;
};

}  // namespace llmprof
