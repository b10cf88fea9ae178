// Kernels of another tool's file found again in the recording beside it, whose recorder writes names in its own way.
#pragma once

#include <string>
#include <string_view>

#include "derive/kernel_function.h"

namespace llmprof {

// By the whole name, by what is in the name, by the function: the first that is known.
constexpr int kNamings = 3;
inline std::string named(int naming, std::string_view kernel) {
  return naming == 0 ? std::string(kernel) : naming == 1 ? kernel_words(kernel) : kernel_function(kernel);
}

}  // namespace llmprof
