// The function that a hook stands in front of.
//
// A hook is found before the library's own function because the injection library is preloaded. The real one is the
// next in the search order, or, where a program loads its libraries privately (Python's extension modules), that of the
// library which is already loaded under the right name. No library is ever loaded for it: a program can hold two CUDA
// majors side by side, and the wrong one would weigh half a gigabyte. Where two are loaded, the first one counts.
// Programs that look functions up by dlsym on a handle of their own (JAX, XLA) are out of reach of a preloaded hook.
#pragma once

#include <atomic>

namespace llmprof::inject {

// What a hook of CUDA returns where there is no real function: cudaErrorInitializationError and
// CUDA_ERROR_NOT_INITIALIZED are both 3.
constexpr int kCudaNotInitialized = 3;

class RealSymbol {
 public:
  // `library`: how the file name of the loaded library starts, "libcublas.so".
  constexpr RealSymbol(const char* name, const char* library) : name_(name), library_(library) {}

  // Null if no loaded library has it; asked again at the next call.
  template <typename Function>
  Function* get() {
    void* address = address_.load(std::memory_order_relaxed);
    if (address == nullptr) address = find();
    return reinterpret_cast<Function*>(address);
  }

 private:
  void* find();

  const char* name_;
  const char* library_;
  std::atomic<void*> address_{nullptr};
};

// True if the program's own calls of `name` come to the hook in this library: it was preloaded. Otherwise (it was only
// opened by CUDA or NVTX) the program finds the real function first, or its libraries have it privately.
bool stands_in_front(const char* name);

}  // namespace llmprof::inject
