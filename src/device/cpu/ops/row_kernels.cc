#include "device/cpu/ops/row_kernels.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

// Vectors of GCC and clang: sixteen lanes become one, two or four registers, as the target has them. They are never
// passed by value, which would depend on the target.
namespace llmprof::device::cpu {
namespace {

constexpr int kLanes = 16;
using Floats = float __attribute__((vector_size(64)));
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
}
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
}
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif
namespace plain {
#include "device/cpu/ops/row_bodies.h"
}

template <class Make32, class Make16>
RowKernels of_type(DType dtype, const char* name, Make32 make32, Make16 make16) {
  return dtype == DType::kBf16 ? make16(name) : make32(name);
}

}  // namespace

std::vector<RowKernels> row_kernels(const Instructions& instructions, DType dtype) {
  std::vector<RowKernels> all;
#if defined(__x86_64__)
  if (instructions.avx512)
    all.push_back(of_type(dtype, "own AVX-512", avx512::kernels<avx512::Fp32>, avx512::kernels<avx512::Bf16>));
  if (instructions.avx2)
    all.push_back(of_type(dtype, "own AVX2", avx2::kernels<avx2::Fp32>, avx2::kernels<avx2::Bf16>));
#else
  static_cast<void>(instructions);
#endif
  if (all.empty()) all.push_back(of_type(dtype, "own plain", plain::kernels<plain::Fp32>, plain::kernels<plain::Bf16>));
  return all;
}

}  // namespace llmprof::device::cpu
