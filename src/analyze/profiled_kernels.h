// Kernels that Nsight Compute profiled: what a question to such a recording can be.
#pragma once

#include "trace/trace.h"

namespace llmprof {

// Whether a recording is the counters of profiled kernels alone: nothing in it has a place in time.
inline bool profiled_only(const Trace& trace) {
  return !trace.profiled_kernels.empty() && trace.gpu_ops.empty() && trace.graph_launches.empty() &&
         trace.annotations.empty() && trace.recorded.empty();
}

}  // namespace llmprof
