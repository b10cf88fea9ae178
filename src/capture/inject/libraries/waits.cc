// Hooks of calls in which the host waits for the GPU: known at every recording level, with the Python line that makes
// them. The runtime reaches the driver by pointers of its own, so one wait is seen once.
#include "capture/inject/python/python_stack.h"
#include "capture/inject/real_symbol.h"
#include "capture/inject/threads/host_pace.h"
#include "capture/inject/threads/thread_events.h"

namespace llmprof::inject {

namespace {

// The record of a wait from construction to end(). A wait that another one makes is part of it.
class WaitScope {
 public:
  WaitScope() {
    ThreadState& thread = thread_state;
    if (!watched() || thread.inside || thread.waits) return;
    log_ = thread_log();
    if (log_ == nullptr) return;
    thread.waits = true;
    stack_ = python_stack_id(*log_);
    start_ns_ = probe_host_pace(*log_, now_ns());
  }
  void end() {
    if (log_ == nullptr) return;
    add_host_place(*log_, spool::PlaceKind::kWait, stack_, start_ns_, now_ns());
    thread_state.waits = false;
  }

 private:
  ThreadLog* log_ = nullptr;
  Id stack_ = 0;
  int64_t start_ns_ = 0;
};

}  // namespace

#define LLMPROF_WAIT_HOOK(name, library, parameters, arguments)          \
  extern "C" __attribute__((visibility("default"))) int name parameters; \
  extern "C" int name parameters {                                       \
    using Function = int parameters;                                     \
    static constinit RealSymbol symbol{#name, library};                  \
    Function* real = symbol.get<Function>();                             \
    if (real == nullptr) return kCudaNotInitialized;                     \
    WaitScope scope;                                                     \
    int status = real arguments;                                         \
    scope.end();                                                         \
    return status;                                                       \
  }

LLMPROF_WAIT_HOOK(cudaStreamSynchronize, "libcudart", (void* stream), (stream))
LLMPROF_WAIT_HOOK(cudaStreamSynchronize_ptsz, "libcudart", (void* stream), (stream))
LLMPROF_WAIT_HOOK(cudaEventSynchronize, "libcudart", (void* event), (event))
LLMPROF_WAIT_HOOK(cudaDeviceSynchronize, "libcudart", (), ())
LLMPROF_WAIT_HOOK(cudaMemcpy, "libcudart", (void* to, const void* from, size_t bytes, int kind),
                  (to, from, bytes, kind))
LLMPROF_WAIT_HOOK(cudaMemcpy_ptds, "libcudart", (void* to, const void* from, size_t bytes, int kind),
                  (to, from, bytes, kind))
LLMPROF_WAIT_HOOK(cuStreamSynchronize, "libcuda.so", (void* stream), (stream))
LLMPROF_WAIT_HOOK(cuStreamSynchronize_ptsz, "libcuda.so", (void* stream), (stream))
LLMPROF_WAIT_HOOK(cuEventSynchronize, "libcuda.so", (void* event), (event))
LLMPROF_WAIT_HOOK(cuCtxSynchronize, "libcuda.so", (), ())

}  // namespace llmprof::inject
