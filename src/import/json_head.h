// The first bytes of a file, for sniffing JSON that is read by its first tokens.
#pragma once

#include <string_view>

namespace llmprof {

class JsonHead {
 public:
  explicit JsonHead(std::string_view head) : head_(head), rest_(head) {}

  // Whether `text` comes next, behind blanks; goes behind it then.
  bool next(std::string_view text) {
    const size_t at = rest_.find_first_not_of(" \n\r\t");
    if (at == std::string_view::npos || !rest_.substr(at).starts_with(text)) return false;
    rest_.remove_prefix(at + text.size());
    return true;
  }
  // Anywhere.
  bool has(std::string_view text) const { return head_.find(text) != std::string_view::npos; }

 private:
  std::string_view head_, rest_;
};

}  // namespace llmprof
