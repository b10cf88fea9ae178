// The name of a GPU activity that is a CUDA graph's launch recorded as a whole (derive/whole_graphs.h).
#pragma once

#include <string_view>

namespace llmprof {

inline constexpr std::string_view kWholeGraphName = "[CUDA graph, nodes not recorded]";

}  // namespace llmprof
