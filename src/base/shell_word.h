// Command lines as people type them: words quoted for a POSIX shell, for lines that are shown to be run by hand.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace llmprof {

// One word: as it is where no shell would change it, else in single quotes.
std::string shell_word(std::string_view text);
// The words with blanks between them.
std::string shell_line(const std::vector<std::string>& words);

// With a backslash before each of `special`.
std::string backslashed(std::string_view text, std::string_view special);

}  // namespace llmprof
