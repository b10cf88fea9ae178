// Kinds of steps of an inference, and who says that a step is one. Recordings, models and reports share them.
#pragma once

#include <cstdint>
#include <string_view>

namespace llmprof {

enum class StageKind : uint8_t { kOther, kPrefill, kDecode, kMixed, kVision };
std::string_view name_of(StageKind kind);

enum class StageSource : uint8_t { kDetected, kAnnotation, kNvtx };
std::string_view name_of(StageSource source);

}  // namespace llmprof
