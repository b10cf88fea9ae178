#include "capture/inject/cupti/capture_hooks.h"

#include <cstddef>
#include <cstdlib>

#include "capture/inject/cupti/attachment.h"
#include "capture/inject/real_symbol.h"
#include "capture/inject/threads/thread_events.h"
#include "capture/session/control.h"

namespace llmprof::inject {

namespace {

// Calls that make an executable graph have three arguments or, before CUDA 12, five: the rest is passed on unread.
using Instantiate = int(void** executable, void* graph, void* flags, void* log, size_t log_bytes);
int instantiate(Instantiate* real, void** executable, void* graph, void* flags, void* log, size_t log_bytes) {
  if (!watched() || thread_state.inside || thread_state.instantiates_graph)
    return real(executable, graph, flags, log, log_bytes);
  thread_state.instantiates_graph = true;
  const int status = real(executable, graph, flags, log, log_bytes);
  thread_state.instantiates_graph = false;
  if (status == 0 && executable != nullptr && *executable != nullptr) graph_instantiated(*executable);
  return status;
}

}  // namespace

// Every graph begins with one of these, whatever is added to it later.
#define LLMPROF_CAPTURE_HOOK(name, library, parameters, arguments, captures) \
  extern "C" __attribute__((visibility("default"))) int name parameters;     \
  extern "C" int name parameters {                                           \
    static constinit RealSymbol symbol{#name, library};                      \
    auto* real = symbol.get<int parameters>();                               \
    if (real == nullptr) return kCudaNotInitialized;                         \
    if (watched() && !thread_state.inside) graph_begins(captures);           \
    return real arguments;                                                   \
  }

LLMPROF_CAPTURE_HOOK(cudaStreamBeginCapture, "libcudart", (void* stream, int mode), (stream, mode), true)
LLMPROF_CAPTURE_HOOK(cudaStreamBeginCapture_ptsz, "libcudart", (void* stream, int mode), (stream, mode), true)
LLMPROF_CAPTURE_HOOK(cudaGraphCreate, "libcudart", (void** graph, unsigned flags), (graph, flags), false)
LLMPROF_CAPTURE_HOOK(cuStreamBeginCapture, "libcuda.so", (void* stream), (stream), true)
LLMPROF_CAPTURE_HOOK(cuStreamBeginCapture_ptsz, "libcuda.so", (void* stream), (stream), true)
LLMPROF_CAPTURE_HOOK(cuStreamBeginCapture_v2, "libcuda.so", (void* stream, int mode), (stream, mode), true)
LLMPROF_CAPTURE_HOOK(cuStreamBeginCapture_v2_ptsz, "libcuda.so", (void* stream, int mode), (stream, mode), true)
LLMPROF_CAPTURE_HOOK(cuGraphCreate, "libcuda.so", (void** graph, unsigned flags), (graph, flags), false)

#define LLMPROF_INSTANTIATE_HOOK(name, library)                                                    \
  extern "C" __attribute__((visibility("default"))) int name(void**, void*, void*, void*, size_t); \
  extern "C" int name(void** executable, void* graph, void* flags, void* log, size_t log_bytes) {  \
    static constinit RealSymbol symbol{#name, library};                                            \
    auto* real = symbol.get<Instantiate>();                                                        \
    if (real == nullptr) return kCudaNotInitialized;                                               \
    return instantiate(real, executable, graph, flags, log, log_bytes);                            \
  }

LLMPROF_INSTANTIATE_HOOK(cudaGraphInstantiate, "libcudart")
LLMPROF_INSTANTIATE_HOOK(cudaGraphInstantiateWithFlags, "libcudart")
LLMPROF_INSTANTIATE_HOOK(cudaGraphInstantiateWithParams, "libcudart")
LLMPROF_INSTANTIATE_HOOK(cudaGraphInstantiateWithParams_ptsz, "libcudart")
LLMPROF_INSTANTIATE_HOOK(cuGraphInstantiate, "libcuda.so")
LLMPROF_INSTANTIATE_HOOK(cuGraphInstantiate_v2, "libcuda.so")
LLMPROF_INSTANTIATE_HOOK(cuGraphInstantiateWithFlags, "libcuda.so")
LLMPROF_INSTANTIATE_HOOK(cuGraphInstantiateWithParams, "libcuda.so")
LLMPROF_INSTANTIATE_HOOK(cuGraphInstantiateWithParams_ptsz, "libcuda.so")

bool captures_are_announced() {
  static const bool announced = std::getenv(session::kEnvCapturesRecorded) != nullptr;
  return announced;
}

bool capture_hooks_work() {
  if (captures_are_announced()) return true;
  // Where the library was not preloaded, or the runtime is part of the program, the program's calls do not come by
  // here.
  static RealSymbol runtime{"cudaStreamBeginCapture", "libcudart"};
  if (runtime.get<int(void*, int)>() == nullptr) return false;
  static const bool in_front = stands_in_front("cudaStreamBeginCapture");
  return in_front;
}

}  // namespace llmprof::inject
