#include "export/value_names.h"

#include <array>

namespace llmprof::exporting {
namespace {

template <class Enum, size_t N>
std::string_view one_of_words(const std::array<std::string_view, N>& words, Enum value) {
  const size_t i = static_cast<size_t>(value);
  return i < N ? words[i] : std::string_view("unknown");
}
template <class... Words>
constexpr std::array<std::string_view, sizeof...(Words)> words(Words... all) {
  return {std::string_view(all)...};
}

}  // namespace

std::string_view word_of(AnnotationKind kind) {
  static constexpr auto kWords = words("user", "gpu-user", "nvtx");
  return one_of_words(kWords, kind);
}
std::string_view word_of(ApiLayer layer) {
  static constexpr auto kWords = words("runtime", "driver");
  return one_of_words(kWords, layer);
}
std::string_view word_of(ProcessorKind kind) {
  static constexpr auto kWords = words("gpu", "cpu");
  return one_of_words(kWords, kind);
}
std::string_view word_of(GpuOpKind kind) {
  static constexpr auto kWords = words("kernel", "memcpy", "memset");
  return one_of_words(kWords, kind);
}
std::string_view word_of(CopyPath path) {
  static constexpr auto kWords = words("unknown", "host-to-device", "device-to-host", "peer", "on-device");
  return one_of_words(kWords, path);
}
std::string_view word_of(HostMemory memory) {
  static constexpr auto kWords = words("unknown", "pageable", "pinned");
  return one_of_words(kWords, memory);
}
std::string_view word_of(AttentionMask mask) {
  static constexpr auto kWords = words("none", "causal", "unknown");
  return one_of_words(kWords, mask);
}
std::string_view word_of(CounterSource source) {
  static constexpr auto kWords = words("pm-sampling", "gpm", "dcgm");
  return one_of_words(kWords, source);
}
std::string_view word_of(InputKind kind) {
  static constexpr auto kWords = words("other", "tensor", "list", "listed", "integers", "boolean");
  return one_of_words(kWords, kind);
}
std::string_view word_of(PlaceKind kind) {
  static constexpr auto kWords = words("wait", "copy", "allocation", "host-code", "launch", "code-sample");
  return one_of_words(kWords, kind);
}
std::string_view word_of(RecordingLevel level) {
  static constexpr auto kWords = words("off", "light", "default", "deep");
  return one_of_words(kWords, level);
}
std::string_view word_of(MissingKernels missing) {
  static constexpr auto kWords = words("none", "graph-nodes", "all");
  return one_of_words(kWords, missing);
}
std::string_view word_of(StepState state) {
  static constexpr auto kWords = words("usual", "whole-graphs", "not-recorded", "window-edge");
  return one_of_words(kWords, state);
}
std::string_view word_of(StepPhase phase) {
  static constexpr auto kWords = words("serving", "warm-up");
  return one_of_words(kWords, phase);
}

}  // namespace llmprof::exporting
