// Kernels that Nsight Compute profiled, logged products, metrics pages and what clients saw: what a question to such a
// recording can be.
#pragma once

#include "trace/trace.h"

namespace llmprof {

// Whether a recording is the counters of profiled kernels, logs of products, metrics pages of servers or results of
// their benchmarks, alone: nothing in it has a place in the time of a program.
inline bool profiled_only(const Trace& trace) {
  return (!trace.profiled_kernels.empty() || !trace.logged_products.empty() || !trace.scraped_values.empty() ||
          !trace.client_figures.empty() || !trace.client_requests.empty()) &&
         trace.gpu_ops.empty() && trace.graph_launches.empty() && trace.annotations.empty() && trace.recorded.empty();
}

// Whether it is metrics pages and results of benchmarks alone, of which no GPU is asked for.
inline bool servers_only(const Trace& trace) {
  return profiled_only(trace) && trace.profiled_kernels.empty() && trace.logged_products.empty();
}

}  // namespace llmprof
