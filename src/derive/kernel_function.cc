#include "derive/kernel_function.h"

#include <algorithm>

namespace llmprof {

std::string kernel_function(std::string_view kernel) {
  std::string name(kernel);
  for (const std::string_view unnamed : {"<unnamed>", "(anonymous namespace)"})
    for (size_t at; (at = name.find(unnamed)) != std::string::npos;) name.erase(at, unnamed.size());
  name.resize(std::min(name.find_first_of("<("), name.size()));
  const size_t begin = name.find_last_of(": ");
  return begin == std::string::npos ? name : name.substr(begin + 1);
}

}  // namespace llmprof
