#include "derive/kernel_function.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

namespace llmprof {

std::string kernel_function(std::string_view kernel) {
  std::string name(kernel);
  for (const std::string_view unnamed : {"<unnamed>", "(anonymous namespace)"})
    for (size_t at; (at = name.find(unnamed)) != std::string::npos;) name.erase(at, unnamed.size());
  name.resize(std::min(name.find_first_of("<("), name.size()));
  const size_t begin = name.find_last_of(": ");
  return begin == std::string::npos ? name : name.substr(begin + 1);
}

std::string kernel_words(std::string_view kernel) {
  // Of no kernel's own, and not written by all.
  static const std::set<std::string_view> kNoWords = {"void",      "const",  "unnamed",  "anonymous",
                                                      "namespace", "lambda", "instance", "operator"};
  const auto in_word = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  };
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  std::set<std::string_view> words;
  for (size_t at = 0; at < kernel.size();) {
    if (!in_word(kernel[at])) {
      ++at;
      continue;
    }
    size_t end = at;
    while (end < kernel.size() && in_word(kernel[end])) ++end;
    std::string_view word = kernel.substr(at, end - at);
    at = end;
    if (kernel.substr(end).starts_with("::") && end + 2 < kernel.size() &&
        (in_word(kernel[end + 2]) || kernel[end + 2] == '<' || kernel[end + 2] == '('))
      continue;  // a namespace
    if (is_digit(word[0])) {
      size_t digits = 0;
      while (digits < word.size() && is_digit(word[digits])) ++digits;
      word = word.substr(0, digits);  // 2ul
    }
    const bool repeated_type = word.size() > 1 && word[0] == 'T' && std::all_of(word.begin() + 1, word.end(), is_digit);
    if (!repeated_type && kNoWords.count(word) == 0) words.insert(word);
  }
  return fmt::format("{}", fmt::join(words, " "));
}

}  // namespace llmprof
