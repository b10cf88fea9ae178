// Streaming JSON writer. The caller opens and closes scopes in order; keys and values alternate inside objects. Doubles
// are printed with the fewest digits that read back as the same value; NaN and infinities become null, because JSON has
// no such numbers and a missing value is null with a reason elsewhere.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace llmprof {

class JsonWriter {
 public:
  // indent 0 writes one line; otherwise objects and arrays of objects are broken over lines.
  explicit JsonWriter(int indent = 2) : indent_(indent) {}

  JsonWriter& begin_object() { return open('{'); }
  JsonWriter& end_object() { return close('}'); }
  JsonWriter& begin_array() { return open('['); }
  JsonWriter& end_array() { return close(']'); }
  JsonWriter& key(std::string_view name);

  JsonWriter& value(std::string_view text);
  JsonWriter& value(const char* text) { return value(std::string_view(text)); }
  JsonWriter& value(const std::string& text) { return value(std::string_view(text)); }
  JsonWriter& value(double number);
  JsonWriter& value(int64_t number);
  JsonWriter& value(uint64_t number);
  JsonWriter& value(int number) { return value(static_cast<int64_t>(number)); }
  JsonWriter& value(uint32_t number) { return value(static_cast<uint64_t>(number)); }
  JsonWriter& value(bool flag);
  JsonWriter& null();
  template <class T>
  JsonWriter& value(const std::optional<T>& maybe) {
    return maybe ? value(*maybe) : null();
  }
  template <class T>
  JsonWriter& field(std::string_view name, const T& v) {
    return key(name).value(v);
  }
  // Text so far; the document is complete once every scope is closed.
  const std::string& str() const { return out_; }
  std::string take() { return std::move(out_); }

 private:
  struct Scope {
    bool array;
    bool empty = true;
  };
  JsonWriter& open(char bracket);
  JsonWriter& close(char bracket);
  void separate();
  void newline();

  std::string out_;
  std::vector<Scope> scopes_;
  bool after_key_ = false;
  int indent_;
};

// Appends `text` as a JSON string with quotes. Bytes that are not UTF-8 become U+FFFD.
void append_json_string(std::string& out, std::string_view text);

}  // namespace llmprof
