// Kernels that Nsight Compute profiled, and logged products: what a question to such a recording can be.
#pragma once

#include "trace/trace.h"

namespace llmprof {

// Whether a recording is the counters of profiled kernels, or logs of products, alone: nothing in it has a place in
// time.
inline bool profiled_only(const Trace& trace) {
  return (!trace.profiled_kernels.empty() || !trace.logged_products.empty()) && trace.gpu_ops.empty() &&
         trace.graph_launches.empty() && trace.annotations.empty() && trace.recorded.empty();
}

}  // namespace llmprof
