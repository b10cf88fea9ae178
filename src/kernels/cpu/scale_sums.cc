#include "kernels/cpu/scale_sums.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "kernels/cpu/row_kernels.h"

namespace llmprof::kernels::cpu {
namespace {

#define LLMPROF_BODIES "kernels/cpu/scale_bodies.h"
#include "kernels/cpu/vector_targets.h"

}  // namespace

std::vector<ScaleKernel> scale_kernels(const device::cpu::Instructions& instructions) {
  std::vector<ScaleKernel> all;
#if defined(__x86_64__)
  if (instructions.avx512) all.push_back({"own AVX-512", avx512::scale_sums});
  if (instructions.avx2) all.push_back({"own AVX2", avx2::scale_sums});
#else
  static_cast<void>(instructions);
#endif
  if (all.empty()) all.push_back({"own plain", plain::scale_sums});
  return all;
}

}  // namespace llmprof::kernels::cpu
