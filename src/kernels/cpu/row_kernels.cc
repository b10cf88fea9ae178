#include "kernels/cpu/row_kernels.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace llmprof::kernels::cpu {
namespace {

#define LLMPROF_BODIES "kernels/cpu/row_bodies.h"
#include "kernels/cpu/vector_targets.h"

}  // namespace

std::vector<RowKernels> row_kernels(const device::cpu::Instructions& instructions, DType dtype) {
  const bool half = dtype == DType::kBf16;
  std::vector<RowKernels> all;
#if defined(__x86_64__)
  if (instructions.avx512)
    all.push_back((half ? avx512::kernels<avx512::Bf16> : avx512::kernels<avx512::Fp32>)("own AVX-512"));
  if (instructions.avx2) all.push_back((half ? avx2::kernels<avx2::Bf16> : avx2::kernels<avx2::Fp32>)("own AVX2"));
#else
  static_cast<void>(instructions);
#endif
  if (all.empty()) all.push_back((half ? plain::kernels<plain::Bf16> : plain::kernels<plain::Fp32>)("own plain"));
  return all;
}

}  // namespace llmprof::kernels::cpu
