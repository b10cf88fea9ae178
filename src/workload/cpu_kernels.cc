#include "workload/cpu_kernels.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

// As in device/cpu/ops/row_kernels.cc: vectors are taken apart for the target of the function that they stand in.
namespace llmprof::workload {
namespace {

using device::cpu::RowArrays;
using device::cpu::RowKernels;
constexpr int kLanes = 16;
using Floats = float __attribute__((vector_size(64)));
using Quads = float __attribute__((vector_size(16)));
using Words = uint32_t __attribute__((vector_size(64)));
using Halves = uint16_t __attribute__((vector_size(32)));
#define LLMPROF_INLINE [[gnu::always_inline]] inline

#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,fma")
#endif
namespace avx512 {
#include "device/cpu/ops/row_bodies.h"
#include "workload/cpu_bodies.h"
}  // namespace avx512
#if defined(__clang__)
#pragma clang attribute pop
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#endif
namespace avx2 {
#include "device/cpu/ops/row_bodies.h"
#include "workload/cpu_bodies.h"
}  // namespace avx2
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif
namespace plain {
#include "device/cpu/ops/row_bodies.h"
#include "workload/cpu_bodies.h"
}  // namespace plain

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
