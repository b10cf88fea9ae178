// Hooks of graph launches: the beat of a program that decodes by CUDA graphs, known at every recording level, CUPTI or
// not. The runtime reaches the driver by pointers of its own, so one launch is seen once. And hooks of what begins a
// graph, before which CUPTI must be in the process, or be brought back (activity.h).
#include "capture/inject/graph_hooks.h"

#include "capture/inject/activity.h"
#include "capture/inject/library_calls.h"

namespace llmprof::inject {

namespace {

// cudaErrorInitializationError and CUDA_ERROR_NOT_INITIALIZED are both 3.
constexpr int kNotInitialized = 3;

// Equal for the same executable graph; mixed, because keys of graphs and of shapes share one space.
uint64_t key_of(const void* graph) {
  return (reinterpret_cast<uintptr_t>(graph) ^ 0x67726170680A0A0AULL) * 0x9E3779B97F4A7C15ULL;
}

int launch(int (*real)(void*, void*), void* graph, void* stream) {
  if (!watched() || thread_state.inside) return real(graph, stream);
  int64_t time_ns = now_ns();
  int status = real(graph, stream);
  ThreadLog* log = status == 0 ? thread_log() : nullptr;
  if (log != nullptr) add_beat(*log, key_of(graph), time_ns);
  return status;
}

}  // namespace

#define LLMPROF_GRAPH_HOOK(name, library)                                   \
  extern "C" __attribute__((visibility("default"))) int name(void*, void*); \
  extern "C" int name(void* graph, void* stream) {                          \
    static constinit RealSymbol symbol{#name, library};                     \
    auto* real = symbol.get<int(void*, void*)>();                           \
    if (real == nullptr) return kNotInitialized;                            \
    return launch(real, graph, stream);                                     \
  }

// Every graph begins with one of these, whatever is added to it later.
#define LLMPROF_CAPTURE_HOOK(name, library, parameters, arguments)       \
  extern "C" __attribute__((visibility("default"))) int name parameters; \
  extern "C" int name parameters {                                       \
    static constinit RealSymbol symbol{#name, library};                  \
    auto* real = symbol.get<int parameters>();                           \
    if (real == nullptr) return kNotInitialized;                         \
    if (watched() && !thread_state.inside) keep_attached();              \
    return real arguments;                                               \
  }

LLMPROF_CAPTURE_HOOK(cudaStreamBeginCapture, "libcudart", (void* stream, int mode), (stream, mode))
LLMPROF_CAPTURE_HOOK(cudaStreamBeginCapture_ptsz, "libcudart", (void* stream, int mode), (stream, mode))
LLMPROF_CAPTURE_HOOK(cudaGraphCreate, "libcudart", (void** graph, unsigned flags), (graph, flags))
LLMPROF_CAPTURE_HOOK(cuStreamBeginCapture, "libcuda.so", (void* stream), (stream))
LLMPROF_CAPTURE_HOOK(cuStreamBeginCapture_ptsz, "libcuda.so", (void* stream), (stream))
LLMPROF_CAPTURE_HOOK(cuStreamBeginCapture_v2, "libcuda.so", (void* stream, int mode), (stream, mode))
LLMPROF_CAPTURE_HOOK(cuStreamBeginCapture_v2_ptsz, "libcuda.so", (void* stream, int mode), (stream, mode))
LLMPROF_CAPTURE_HOOK(cuGraphCreate, "libcuda.so", (void** graph, unsigned flags), (graph, flags))

bool capture_hooks_work() {
  // Where the library was not preloaded, or the runtime is part of the program, the program's calls do not come by
  // here.
  static RealSymbol runtime{"cudaStreamBeginCapture", "libcudart"};
  if (runtime.get<int(void*, int)>() == nullptr) return false;
  static const bool in_front = stands_in_front("cudaStreamBeginCapture");
  return in_front;
}

LLMPROF_GRAPH_HOOK(cudaGraphLaunch, "libcudart")
LLMPROF_GRAPH_HOOK(cudaGraphLaunch_ptsz, "libcudart")
LLMPROF_GRAPH_HOOK(cuGraphLaunch, "libcuda.so")
LLMPROF_GRAPH_HOOK(cuGraphLaunch_ptsz, "libcuda.so")

}  // namespace llmprof::inject
