#include "base/stage.h"

#include <array>

namespace llmprof {

std::string_view name_of(StageKind kind) {
  static constexpr std::array<std::string_view, 6> kNames = {"other", "prefill", "decode",
                                                             "mixed", "vision",  "speculative"};
  return kNames[static_cast<size_t>(kind)];
}

std::string_view name_of(StageSource source) {
  static constexpr std::array<std::string_view, 3> kNames = {"detected", "annotation", "nvtx"};
  return kNames[static_cast<size_t>(source)];
}

std::string_view name_of(WarmUpCause cause) {
  static constexpr std::array<std::string_view, static_cast<size_t>(WarmUpCause::kCount)> kNames = {
      "", "named", "module-loading", "compilation", "graph-capture", "allocation", "first-calls", "unknown"};
  return kNames[static_cast<size_t>(cause)];
}

std::string_view in_words(WarmUpCause cause) {
  static constexpr std::array<std::string_view, static_cast<size_t>(WarmUpCause::kCount)> kWords = {
      "",
      "it is before the first step that the program names",
      "modules were loaded",
      "code was compiled",
      "CUDA graphs were captured",
      "memory was allocated",
      "kernels ran for the first time",
      "steps after it are faster and nothing recorded says why"};
  return kWords[static_cast<size_t>(cause)];
}

}  // namespace llmprof
