// What calls do with CUDA graphs, by their names in the runtime and in the driver.
#pragma once

#include <cstdint>
#include <string_view>

namespace llmprof {

enum class GraphCall : uint8_t { kNone, kBeginCapture, kEndCapture, kInstantiate, kLaunch };

inline GraphCall graph_call_of(std::string_view name) {
  const auto has = [&](std::string_view piece) { return name.find(piece) != std::string_view::npos; };
  if (has("BeginCapture")) return GraphCall::kBeginCapture;
  if (has("EndCapture")) return GraphCall::kEndCapture;
  if (has("GraphInstantiate")) return GraphCall::kInstantiate;
  return has("GraphLaunch") ? GraphCall::kLaunch : GraphCall::kNone;
}

}  // namespace llmprof
