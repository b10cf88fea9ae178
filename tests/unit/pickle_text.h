// Pickles of protocol 2, written by hand for tests: values as their bytes.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

namespace llmprof::pickled {

inline std::string bytes_of(uint64_t value, int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += static_cast<char>((value >> (8 * i)) & 0xFF);
  return out;
}
inline std::string text(std::string_view value) { return "X" + bytes_of(value.size(), 4) + std::string(value); }
inline std::string integer(int64_t value) {
  return std::string("\x8A\x08") + bytes_of(static_cast<uint64_t>(value), 8);
}
inline std::string list(std::initializer_list<std::string> items) {
  std::string out = "](";
  for (const std::string& item : items) out += item;
  return out + "e";
}
inline std::string dict(std::initializer_list<std::pair<std::string, std::string>> items) {
  std::string out = "}(";
  for (const auto& [key, value] : items) out += text(key) + value;
  return out + "u";
}
inline std::string document(const std::string& value) { return "\x80\x02" + value + "."; }

}  // namespace llmprof::pickled
