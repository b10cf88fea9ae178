// The model's operators on a GPU: products by cuBLASLt, attention of prompts and pictures by cuDNN where there is one,
// everything else by own kernels. Everything runs on one stream; what comes from the host goes through pinned memory.
#pragma once

#include <memory>
#include <string>

#include "workload/backend.h"

namespace llmprof::workload {

// `device` is a CudaDevice. With `graph`, repeatable() records a CUDA graph; without, operators are launched one after
// another each time. Error: cuBLASLt or NVRTC is missing, the GPU is too old, or the type is not fp32 or bf16.
Result<std::unique_ptr<Backend>> open_cuda_backend(std::unique_ptr<device::Device> device, DType dtype, bool graph);

// Whether open_cuda_backend would find the libraries that it needs, in a few tens of milliseconds.
Status check_cuda_libraries(device::Device& device);

}  // namespace llmprof::workload
