// Copies between the host and a GPU through page-locked memory, which the GPU reads without the driver's help.
#pragma once

#include <memory>

#include "device/cuda/context.h"

namespace llmprof::workload {

class Pinned {
 public:
  explicit Pinned(device::cuda::Context& context) : context_(context) {}
  ~Pinned();
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;

  // `from` may be used again at once; the copy is done in the order of the stream.
  Status upload(cuda_abi::DevicePtr to, const void* from, size_t bytes);
  // Waits for everything before it.
  Status download(void* to, cuda_abi::DevicePtr from, size_t bytes);
  Status wait();

 private:
  // So many bytes that no copy uses.
  Result<char*> room(size_t bytes);

  device::cuda::Context& context_;
  char* memory_ = nullptr;
  size_t bytes_ = 0, used_ = 0;
};

}  // namespace llmprof::workload
