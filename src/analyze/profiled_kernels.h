// Kernels that Nsight Compute profiled, logged products and what clients saw: what a question to such a recording can
// be.
#pragma once

#include "trace/trace.h"

namespace llmprof {

// Whether a recording is the counters of profiled kernels, logs of products, or results of server benchmarks, alone:
// nothing in it has a place in time.
inline bool profiled_only(const Trace& trace) {
  return (!trace.profiled_kernels.empty() || !trace.logged_products.empty() || !trace.client_figures.empty() ||
          !trace.client_requests.empty()) &&
         trace.gpu_ops.empty() && trace.graph_launches.empty() && trace.annotations.empty() && trace.recorded.empty();
}

// Whether it is results of server benchmarks and nothing else: there is no GPU to describe.
inline bool clients_only(const Trace& trace) {
  return profiled_only(trace) && trace.profiled_kernels.empty() && trace.logged_products.empty();
}

}  // namespace llmprof
