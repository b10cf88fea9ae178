#include "workload/cpu_kernels.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace llmprof::workload {
namespace {

using kernels::cpu::RopeArrays;
using kernels::cpu::RowArrays;
using kernels::cpu::RowKernels;
#define LLMPROF_BODIES "workload/cpu_bodies.h"
#include "kernels/cpu/vector_targets.h"

}  // namespace

CpuKernels cpu_kernels(const device::cpu::Instructions& instructions, DType dtype) {
  const bool half = dtype == DType::kBf16;
#if defined(__x86_64__)
  if (instructions.avx512) return half ? avx512::all_kernels<avx512::Bf16>() : avx512::all_kernels<avx512::Fp32>();
  if (instructions.avx2) return half ? avx2::all_kernels<avx2::Bf16>() : avx2::all_kernels<avx2::Fp32>();
#else
  static_cast<void>(instructions);
#endif
  return half ? plain::all_kernels<plain::Bf16>() : plain::all_kernels<plain::Fp32>();
}

}  // namespace llmprof::workload
