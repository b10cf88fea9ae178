// Kernels that Nsight Compute profiled, logged products and metrics pages: what a question to such a recording can be.
#pragma once

#include "trace/trace.h"

namespace llmprof {

// Whether a recording is the counters of profiled kernels, logs of products, or metrics pages of servers, alone:
// nothing in it has a place in the time of a program.
inline bool profiled_only(const Trace& trace) {
  return (!trace.profiled_kernels.empty() || !trace.logged_products.empty() || !trace.scraped_values.empty()) &&
         trace.gpu_ops.empty() && trace.graph_launches.empty() && trace.annotations.empty() && trace.recorded.empty();
}

// Whether it is metrics pages alone, of which no GPU is asked for.
inline bool metrics_pages_only(const Trace& trace) {
  return profiled_only(trace) && trace.profiled_kernels.empty() && trace.logged_products.empty();
}

}  // namespace llmprof
