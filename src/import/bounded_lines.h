// Lines of a text file of any size, in memory for one line of bounded length.
#pragma once

#include <cstddef>
#include <functional>
#include <string_view>

#include "base/input_file.h"

namespace llmprof {

// Without the end of the line. Of a line longer than the bound its first bytes, and `too_long`; `cut` where the file
// ends inside of it. The text lasts until the call returns.
struct BoundedLine {
  std::string_view text;
  bool too_long = false;
  bool cut = false;
};

void read_bounded_lines(InputFile& input, size_t bytes_most, const std::function<void(const BoundedLine&)>& use);

}  // namespace llmprof
