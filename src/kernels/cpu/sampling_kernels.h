// Scans of logits on the CPU, in the widths of row_kernels.h. Elements fp32 or bf16.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "device/cpu/facts.h"

namespace llmprof::kernels::cpu {

struct Logit {
  float value = 0;
  int32_t token = 0;
};
// The larger; of equal ones the earlier.
inline bool is_before(const Logit& a, const Logit& b) {
  return a.value > b.value || (a.value == b.value && a.token < b.token);
}

struct SamplingKernels {
  std::string_view name;  // "own AVX-512"
  // The largest of elements [first, last) of a row, the first of several.
  Logit (*largest)(const void* row, int64_t first, int64_t last);
  // The k largest of them, in no order; all of them if they are fewer. `found` has room for 2 k + 16 and says how many
  // it holds.
  void (*top)(const void* row, int64_t first, int64_t last, int64_t k, std::vector<Logit>& found);
};
// Widest first. Of fp32 or bf16.
std::vector<SamplingKernels> sampling_kernels(const device::cpu::Instructions& instructions, DType dtype);

}  // namespace llmprof::kernels::cpu
