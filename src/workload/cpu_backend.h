// The model's operators on the CPU: products by oneDNN, everything else by own kernels on the same threads.
#pragma once

#include <memory>

#include "workload/backend.h"

namespace llmprof::workload {

// The type that a CPU is fastest in: bf16 where it has instructions for it, else fp32.
DType cpu_dtype();

// `threads` 0: all that the process may use. Error: oneDNN is missing, or the type is not fp32 or (where the CPU has no
// instructions for it) bf16.
Result<std::unique_ptr<Backend>> open_cpu_backend(int threads, DType dtype);

}  // namespace llmprof::workload
