#include "analyze/roof.h"

namespace llmprof {

Bound kernel_bound(const KernelKey& key, const KernelSums& sums, const Works& works, const DeviceReport* device) {
  if (sums.kind != GpuOpKind::kKernel) return Bound::kCopy;  // kernels that copy or cast are passes over memory
  if (key.category == Category::kCommunication) return Bound::kComm;
  const double total_ns = static_cast<double>(sums.total_ns), calls = static_cast<double>(sums.calls);
  if (key.work != kNoRow && device != nullptr) {
    const RoofPoint point = place_on_roof(works.flops[key.work] * calls, works.bytes[key.work] * calls, total_ns, calls,
                                          device->roof_of(works.dtype[key.work]), device->roof_bytes_per_s());
    if (point.bound != Bound::kUnknown) return point.bound;
  }
  const bool arithmetic = key.category == Category::kGemm || key.category == Category::kAttention ||
                          key.category == Category::kConvolution || key.category == Category::kOther;
  if (arithmetic) return total_ns < calls * kShortKernelNs / 2 ? Bound::kLatency : Bound::kUnknown;
  return total_ns < calls * kShortKernelNs ? Bound::kLatency : Bound::kMemory;
}

}  // namespace llmprof
