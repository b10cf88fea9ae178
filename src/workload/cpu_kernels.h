// Kernels of the model on a CPU that src/device/cpu does not have: sixteen lanes of fp32 whatever the elements are,
// compiled for each width of vectors. Elements fp32 or bf16.
#pragma once

#include <cstdint>

#include "device/cpu/facts.h"
#include "device/cpu/ops/row_kernels.h"
#include "workload/backend.h"

namespace llmprof::workload {

// Shares of the work: rows, elements, or (sequence, head, query) in that order, [first, last) of them.
struct CpuKernels {
  void (*layernorm)(const device::cpu::RowArrays& arrays, int64_t first, int64_t last);
  void (*add)(const void* x, void* to, int64_t first, int64_t last);
  void (*gelu)(const void* x, void* out, int64_t first, int64_t last);
  void (*rope)(const Tensor& x, int64_t heads, int64_t head_size, const float* angles, const int32_t* positions,
               int64_t first, int64_t last);
  // `scores` holds call.keys numbers, a multiple of 16, one buffer for each thread.
  void (*attention)(const AttentionCall& call, float* scores, int64_t first, int64_t last);
};
constexpr int64_t kHeadSizeMax = 256;

CpuKernels cpu_kernels(const device::cpu::Instructions& instructions, DType dtype);

}  // namespace llmprof::workload
