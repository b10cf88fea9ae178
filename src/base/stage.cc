#include "base/stage.h"

#include <array>

namespace llmprof {

std::string_view name_of(StageKind kind) {
  static constexpr std::array<std::string_view, 5> kNames = {"other", "prefill", "decode", "mixed", "vision"};
  return kNames[static_cast<size_t>(kind)];
}

std::string_view name_of(StageSource source) {
  static constexpr std::array<std::string_view, 3> kNames = {"detected", "annotation", "nvtx"};
  return kNames[static_cast<size_t>(source)];
}

}  // namespace llmprof
