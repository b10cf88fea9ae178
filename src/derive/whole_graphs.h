// CUDA graph launches that were recorded as a whole, because recording each node costs more. They are GPU time like any
// other: each becomes one GPU activity with the name below, category other, so that busy time, steps and latency are
// complete. Their arithmetic is unknown and counts as such wherever coverage is stated.
#pragma once

#include <string_view>

#include "trace/trace.h"
#include "trace/whole_graph_name.h"

namespace llmprof {

// Handle of that name in a trace; StringId::kEmpty if it holds no such activity.
inline StringId whole_graph_name(const Trace& trace) { return trace.strings.find(kWholeGraphName); }

}  // namespace llmprof
