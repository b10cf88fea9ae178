#include "trace/trace.h"

#include <array>

namespace llmprof {
namespace {

template <class Enum, size_t N>
std::string_view pick(const std::array<std::string_view, N>& names, Enum value) {
  const size_t i = static_cast<size_t>(value);
  return i < N ? names[i] : std::string_view("unknown");
}

}  // namespace

Trace::Trace() = default;
Trace::Trace(Trace&& other) noexcept = default;
Trace& Trace::operator=(Trace&& other) noexcept = default;
Trace::~Trace() = default;

std::string_view category_name(Category category) {
  static constexpr std::array<std::string_view, static_cast<size_t>(Category::kCount)> kNames = {
      "other",     "gemm",     "attention", "norm",        "rope",     "activation",  "softmax",       "elementwise",
      "embedding", "kv-cache", "sampling",  "moe-routing", "quantize", "convolution", "communication", "copy"};
  return pick(kNames, category);
}

std::string_view idle_cause_name(IdleCause cause) {
  static constexpr std::array<std::string_view, static_cast<size_t>(IdleCause::kCount)> kNames = {
      "unknown",   "launch-call", "operator-dispatch", "host-work", "launch-latency", "blocking-sync", "copy",
      "allocator", "other-api",   "graph-internal",    "profiler",  "no-work",        "no-input",      "not-recorded"};
  return pick(kNames, cause);
}

std::string_view work_kind_name(WorkKind kind) {
  static constexpr std::array<std::string_view, 6> kNames = {"gemm",   "attention", "convolution",
                                                             "gather", "pointwise", "reduction"};
  return pick(kNames, kind);
}

}  // namespace llmprof
