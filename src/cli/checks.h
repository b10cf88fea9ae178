// What the values of options must be, with errors in the words of every other error: what was expected, what was found.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/declare.h"

namespace llmprof::cli {

Check whole_number(int64_t low, int64_t high);
Check decimal_number(double low, double high);
Check one_of(std::vector<std::string> words);

}  // namespace llmprof::cli
