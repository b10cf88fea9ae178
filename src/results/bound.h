// What limits a kernel by its place on the roofline (hardware/roofline.h), and the steps of a stage by where their time
// goes: then also overhead (neither arithmetic nor traffic), waiting of the host, or several of them.
#pragma once

#include <cstdint>
#include <string_view>

namespace llmprof {

enum class Bound : uint8_t { kUnknown, kCompute, kMemory, kLatency, kCopy, kComm, kOverhead, kSync, kMixed, kCount };
std::string_view name_of(Bound bound);

}  // namespace llmprof
