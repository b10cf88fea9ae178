// Recordings without a program: kernels that Nsight Compute profiled, logged products, metrics pages, what clients saw,
// snapshots of memory, times of an engine, trees of Proton and what NCCL says have no place in the time of one, and
// what is asked of a run is not asked of them.
#pragma once

#include "trace/trace.h"

namespace llmprof {

// Whether it has a snapshot or the statistics of PyTorch's allocator.
inline bool of_allocator(const Trace& trace) {
  return !trace.memory_blocks.empty() || !trace.allocator_figures.empty() || !trace.memory_failures.empty();
}

// Whether it has layers or queries of an engine of TensorRT.
inline bool of_engine(const Trace& trace) {
  return !trace.inspected_layers.empty() || !trace.layer_times.empty() || !trace.engine_queries.empty();
}

// Whether it has a tree of Triton's Proton.
inline bool of_proton(const Trace& trace) { return !trace.proton_nodes.empty(); }

// Whether it has what NCCL's log says, and what its Inspector timed.
inline bool of_nccl_log(const Trace& trace) {
  return !trace.logged_ranks.empty() || !trace.logged_links.empty() || !trace.logged_collectives.empty() ||
         !trace.logged_choices.empty() || !trace.logged_warnings.empty();
}
inline bool of_nccl_inspector(const Trace& trace) {
  return !trace.inspected_operations.empty() || !trace.inspected_losses.empty();
}

// Whether a recording is the counters of profiled kernels, logs of products, metrics pages of servers, results of
// their benchmarks, the state of an allocator, what trtexec exports, Proton's trees or what NCCL says, alone: nothing
// in it has a place in the time of a program.
inline bool profiled_only(const Trace& trace) {
  return (!trace.profiled_kernels.empty() || !trace.logged_products.empty() || !trace.scraped_values.empty() ||
          !trace.client_figures.empty() || !trace.client_requests.empty() || of_allocator(trace) || of_engine(trace) ||
          of_proton(trace) || of_nccl_log(trace) || of_nccl_inspector(trace)) &&
         trace.gpu_ops.empty() && trace.graph_launches.empty() && trace.annotations.empty() && trace.recorded.empty();
}

// Whether it is what profiled_only() is, or readings of a GPU alone: of no file it can be said that the others stand
// beside it. A recording that lost its tables is one still.
inline bool without_recording(const Trace& trace) {
  if (trace.diagnostics.count(DiagnosticId::kDamagedBlock) > 0) return false;
  return profiled_only(trace) || (trace.gpu_ops.empty() && trace.threads.empty() && trace.metadata.count("mode") == 0);
}

// Whether it is metrics pages, results of benchmarks and an allocator's state alone, of which no GPU is asked for.
inline bool servers_only(const Trace& trace) {
  return profiled_only(trace) && trace.profiled_kernels.empty() && trace.logged_products.empty();
}

}  // namespace llmprof
