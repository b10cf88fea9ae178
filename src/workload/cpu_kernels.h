// Kernels of the model on a CPU that src/device/cpu does not have: sixteen lanes of fp32 whatever the elements are,
// compiled for each width of vectors. Elements fp32 or bf16.
#pragma once

#include <cstdint>

#include "device/cpu/facts.h"
#include "kernels/cpu/row_kernels.h"

namespace llmprof::workload {

// Shares of the work: rows or elements, [first, last) of them.
struct CpuKernels {
  void (*layernorm)(const kernels::cpu::RowArrays& arrays, int64_t first, int64_t last);
  void (*add)(const void* x, void* to, int64_t first, int64_t last);
  void (*gelu)(const void* x, void* out, int64_t first, int64_t last);
  // Which of `columns` numbers is the largest; the first of several.
  int64_t (*largest)(const float* row, int64_t columns);
};

CpuKernels cpu_kernels(const device::cpu::Instructions& instructions, DType dtype);

}  // namespace llmprof::workload
