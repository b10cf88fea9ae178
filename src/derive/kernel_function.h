// A kernel's function without what recorders print in different ways.
#pragma once

#include <string>
#include <string_view>

namespace llmprof {

// The function's own name: of "void at::native::(anonymous namespace)::copy<4, f>(int)" it is "copy". Recorders print
// namespaces and template arguments in different ways; Nsight Compute filters by this name by default.
std::string kernel_function(std::string_view kernel);

}  // namespace llmprof
