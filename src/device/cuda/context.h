// One GPU as operations see it: its primary context, one stream, own kernels, cuBLASLt, cuBLAS and cuDNN. Opened with
// the driver alone; the others are opened when they are first asked for, so that each missing library costs only what
// needs it.
//
// One thread uses a context, and it is current on that thread. Everything is enqueued on stream().
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "device/cuda/compiler.h"
#include "device/device.h"
#include "nvidia/libraries.h"

namespace llmprof::device::cuda {

inline cuda_abi::DevicePtr pointer_of(const Buffer& buffer) {
  return reinterpret_cast<cuda_abi::DevicePtr>(buffer.address());
}

// A kernel of an own source, loaded. Lives as long as its context.
struct Kernel {
  cuda_abi::Function function = nullptr;
  std::string name;
};

// cuBLASLt with its handle and workspace; freed with its context.
struct CublasLt {
  nvidia::CublasLtLibrary library;
  cublaslt::Handle handle = nullptr;
  cuda_abi::DevicePtr workspace = 0;
  size_t workspace_bytes = 0;
};

// cuBLAS with its handle, on the context's stream and with cuBLASLt's workspace; freed with its context.
struct Cublas {
  nvidia::CublasLibrary library;
  cublas::Handle handle = nullptr;
};

// cuDNN with its handle, on the context's stream; freed with its context.
struct Cudnn {
  nvidia::CudnnLibrary library;
  cudnn::Handle handle = nullptr;
};

class Context {
 public:
  // The error says which GPUs there are if this one is not among them.
  static Result<std::unique_ptr<Context>> open(int ordinal);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  const cuda_abi::Api& api() const { return driver_.api; }
  const nvidia::DriverLibrary& driver() const { return driver_; }
  cuda_abi::Device device() const { return device_; }
  cuda_abi::Stream stream() const { return stream_; }
  int ordinal() const { return ordinal_; }
  int attribute(cuda_abi::DeviceAttribute attribute) const;  // 0 if the driver does not tell
  int cc() const { return 10 * cc_major_ + cc_minor_; }      // 90 for 9.0
  int sms() const { return sms_; }

  // A failure in words: "copying to the GPU: out of memory (...)". After an error that breaks the context every later
  // call fails with the same sentence, at once.
  Status check(cuda_abi::Result result, std::string_view doing);
  bool lost() const { return lost_.has_value(); }
  Status synchronize();

  // Compiles those that kernel() is about to be asked for, side by side: NVRTC takes half a second and more for each.
  // What does not compile is said by kernel().
  void compile_ahead(const std::vector<KernelSource>& sources);
  // Compiled, or from the cache, and loaded; once per source and macros.
  Result<Kernel> kernel(const KernelSource& source, const char* function);
  // How many blocks of so many threads an SM holds at once, at least 1.
  int blocks_per_sm(const Kernel& kernel, unsigned threads, size_t shared_bytes = 0);
  // False if not even one: the registers of an SM do not suffice.
  bool fits(const Kernel& kernel, unsigned threads);
  // Parameters must have exactly the types that the kernel declares.
  template <class... Parameters>
  Status launch(const Kernel& kernel, unsigned grid, unsigned threads, const Parameters&... parameters) {
    void* list[] = {const_cast<void*>(static_cast<const void*>(&parameters))..., nullptr};
    return launch_list(kernel, grid, 1, threads, 0, list);
  }
  Status launch_list(const Kernel& kernel, unsigned grid_x, unsigned grid_y, unsigned threads, unsigned shared_bytes,
                     void** parameters);

  Result<const nvidia::NvrtcLibrary*> nvrtc();
  Result<const CublasLt*> cublaslt();
  Result<const Cublas*> cublas();
  Result<const Cudnn*> cudnn();

 private:
  Context() = default;

  nvidia::DriverLibrary driver_;
  int ordinal_ = 0, cc_major_ = 0, cc_minor_ = 0, sms_ = 0;
  cuda_abi::Device device_ = 0;
  cuda_abi::Context context_ = nullptr;
  cuda_abi::Stream stream_ = nullptr;
  std::optional<Error> lost_;
  std::optional<Result<nvidia::NvrtcLibrary>> nvrtc_;
  std::optional<Result<CublasLt>> cublaslt_;
  std::optional<Result<Cublas>> cublas_;
  std::optional<Result<Cudnn>> cudnn_;
  std::map<std::string, cuda_abi::Module> modules_;
  std::map<std::string, std::string> compiled_;  // ahead, and not loaded yet
  std::map<std::string, Error> broken_;          // sources that do not compile: said again, not tried again
};

}  // namespace llmprof::device::cuda
