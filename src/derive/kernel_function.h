// A kernel's function without what recorders print in different ways.
#pragma once

#include <string>
#include <string_view>

namespace llmprof {

// The function's own name: of "void at::native::(anonymous namespace)::copy<4, f>(int)" it is "copy". Recorders print
// namespaces and template arguments in different ways; Nsight Compute filters by this name by default.
std::string kernel_function(std::string_view kernel);

// The names and numbers in it, each once, in order: of "void at::copy<4, at::native::Mul<float>>(int, T2)" they are
// "4 Mul copy float int". Recorders write the same kernel with and without namespaces, with T2 for a type that was
// there before, with "(instance 2)" for "#2"; kernels of one function with other functors have other names in them.
std::string kernel_words(std::string_view kernel);

}  // namespace llmprof
