// What limits a kernel, by its place on the roofline (hardware/roofline.h).
#pragma once

#include <cstdint>
#include <string_view>

namespace llmprof {

enum class Bound : uint8_t { kUnknown, kCompute, kMemory, kLatency, kCopy, kComm, kCount };
std::string_view name_of(Bound bound);

}  // namespace llmprof
