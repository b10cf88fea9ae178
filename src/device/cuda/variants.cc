#include "device/cuda/variants.h"

#include <fmt/format.h>

namespace llmprof::device::cuda {

std::vector<KernelSource> every_kernel() {
  std::vector<KernelSource> all = {{"fill.cu", {}}, {"timing.cu", {}}};
  for (const int unroll : {2, 4, 8}) all.push_back({"memory.cu", {fmt::format("UNROLL={}", unroll)}});
  return all;
}

}  // namespace llmprof::device::cuda
