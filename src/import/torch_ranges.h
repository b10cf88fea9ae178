// PyTorch and llmprof's hook module speak through NVTX: ranges that are operators or Python calls, not stages that the
// program named. For recorders that hand over the text of a range and nothing else.
#pragma once

#include <string_view>

#include "trace/trace_builder.h"

namespace llmprof {

// Adds the range as a row of ops or python_calls and answers true, or leaves it alone: then it is the program's own.
bool add_torch_range(TraceBuilder& builder, ThreadId thread, std::string_view text, int64_t start_ns, int64_t dur_ns);

}  // namespace llmprof
