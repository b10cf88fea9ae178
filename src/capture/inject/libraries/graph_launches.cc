// Hooks of graph launches: the calls that recur in each step of a program that decodes by CUDA graphs, known at every
// recording level, CUPTI or not. The runtime reaches the driver by pointers of its own, so one launch is seen once.
#include "capture/inject/cupti/attachment.h"
#include "capture/inject/real_symbol.h"
#include "capture/inject/threads/thread_events.h"

namespace llmprof::inject {

namespace {

// Equal for the same executable graph; mixed, because keys of graphs and of shapes share one space.
uint64_t key_of(const void* graph) {
  return (reinterpret_cast<uintptr_t>(graph) ^ 0x67726170680A0A0AULL) * 0x9E3779B97F4A7C15ULL;
}

int launch(int (*real)(void*, void*), void* graph, void* stream) {
  if (!watched() || thread_state.inside || thread_state.launches_graph) return real(graph, stream);
  graph_launch_begins();
  int64_t time_ns = now_ns();
  int status = real(graph, stream);
  graph_launch_ends();
  ThreadLog* log = status == 0 ? thread_log() : nullptr;
  if (log != nullptr) add_recurring_call(*log, key_of(graph), time_ns);
  return status;
}

}  // namespace

#define LLMPROF_GRAPH_HOOK(name, library)                                   \
  extern "C" __attribute__((visibility("default"))) int name(void*, void*); \
  extern "C" int name(void* graph, void* stream) {                          \
    static constinit RealSymbol symbol{#name, library};                     \
    auto* real = symbol.get<int(void*, void*)>();                           \
    if (real == nullptr) return kCudaNotInitialized;                        \
    return launch(real, graph, stream);                                     \
  }

LLMPROF_GRAPH_HOOK(cudaGraphLaunch, "libcudart")
LLMPROF_GRAPH_HOOK(cudaGraphLaunch_ptsz, "libcudart")
LLMPROF_GRAPH_HOOK(cuGraphLaunch, "libcuda.so")
LLMPROF_GRAPH_HOOK(cuGraphLaunch_ptsz, "libcuda.so")

}  // namespace llmprof::inject
