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

template <class Make32, class Make16>
RowKernels of_type(DType dtype, const char* name, Make32 make32, Make16 make16) {
  return dtype == DType::kBf16 ? make16(name) : make32(name);
}

}  // namespace

std::vector<RowKernels> row_kernels(const device::cpu::Instructions& instructions, DType dtype) {
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

}  // namespace llmprof::kernels::cpu
