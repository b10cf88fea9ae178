#include "report/kernel_name.h"

#include <algorithm>
#include <array>
#include <vector>

namespace llmprof {
namespace {

bool is_identifier(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '$' ||
         (static_cast<unsigned char>(c) & 0x80) != 0;
}

bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

// Wrappers that say how a functor is applied, not which one.
bool is_wrapper(std::string_view name) {
  static constexpr std::array<std::string_view, 12> kWrappers = {
      "gpu_kernel_impl_nocast", "gpu_kernel_impl",  "BinaryFunctor",  "UnaryFunctor", "AUnaryFunctor",
      "BUnaryFunctor",          "ReduceOp",         "func_wrapper_t", "kernel",       "OpaqueType",
      "TensorIterator",         "opmath_gpu_kernel"};
  return std::find(kWrappers.begin(), kWrappers.end(), name) != kWrappers.end();
}

// True if the name says which operation a generic kernel carries.
bool names_operation(std::string_view name) {
  if (is_wrapper(name)) return false;
  for (const std::string_view part : {"Functor", "_kernel", "Ops", "_cuda", "_out"})
    if (contains(name, part)) return true;
  return false;
}

// End of the qualified name at the start of a signature: before its template or parameter list.
size_t end_of_name(std::string_view text) {
  static constexpr std::string_view kAnonymous = "(anonymous namespace)";
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '<') return i;
    if (text[i] != '(') continue;
    if (text.substr(i, kAnonymous.size()) != kAnonymous) return i;
    i += kAnonymous.size() - 1;
  }
  return text.size();
}

std::string_view last_component(std::string_view qualified) {
  const size_t colon = qualified.rfind("::");
  return colon == std::string_view::npos ? qualified : qualified.substr(colon + 2);
}

// The template arguments after `start`, up to the matching bracket (or the end, if the name was cut).
std::string_view template_arguments(std::string_view text, size_t start) {
  if (start >= text.size() || text[start] != '<') return {};
  int depth = 0;
  for (size_t i = start; i < text.size(); ++i) {
    if (text[i] == '<') ++depth;
    if (text[i] == '>' && (i == 0 || text[i - 1] != '-') && --depth == 0) return text.substr(start + 1, i - start - 1);
  }
  return text.substr(start + 1);
}

}  // namespace

std::string short_kernel_name(std::string_view name) {
  if (name.starts_with("Memcpy") || name.starts_with("Memset")) return std::string(name);
  std::string_view text = name;
  for (const std::string_view prefix : {"void ", "__global__ ", "static "})
    if (text.starts_with(prefix)) text.remove_prefix(prefix.size());
  const size_t end = end_of_name(text);
  if (end == text.size()) return std::string(text.starts_with("at::") ? last_component(text) : text);
  const std::string_view base = last_component(text.substr(0, end));
  if (base.empty()) return std::string(name);
  const std::string_view arguments = template_arguments(text, end);
  // CUTLASS entry points are named by their only argument.
  const bool entry_point = base == "Kernel" || base == "Kernel2" || base == "device_kernel";
  for (size_t i = 0; i < arguments.size();) {
    if (!is_identifier(arguments[i])) {
      ++i;
      continue;
    }
    size_t stop = i;
    while (stop < arguments.size() && is_identifier(arguments[stop])) ++stop;
    const std::string_view word = arguments.substr(i, stop - i);
    const bool qualifier = arguments.substr(stop, 2) == "::";
    const bool digit = word[0] >= '0' && word[0] <= '9';
    if (!qualifier && !digit && entry_point) return std::string(word);
    if (!qualifier && !digit && names_operation(word)) return std::string(base) + "<" + std::string(word) + ">";
    i = stop;
  }
  return std::string(base);
}

}  // namespace llmprof
