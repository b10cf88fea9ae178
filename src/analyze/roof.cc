#include "analyze/roof.h"

#include <algorithm>

namespace llmprof {

std::string_view bound_name(Bound bound) {
  switch (bound) {
    case Bound::kCompute:
      return "compute";
    case Bound::kMemory:
      return "memory";
    case Bound::kLatency:
      return "latency";
    case Bound::kCopy:
      return "copy";
    case Bound::kComm:
      return "comm";
    case Bound::kUnknown:
      break;
  }
  return "unknown";
}

RoofPoint place_on_roof(double flops, double bytes, double total_ns, double calls, OptDouble flops_per_s,
                        OptDouble bytes_per_s) {
  RoofPoint point;
  if (flops_per_s) point.compute_ns = flops / *flops_per_s * 1e9;
  if (bytes_per_s) point.memory_ns = bytes / *bytes_per_s * 1e9;
  if (!point.memory_ns || (flops > 0 && !point.compute_ns)) return point;
  const double compute_ns = flops > 0 ? *point.compute_ns : 0;
  point.roof_ns = std::max(compute_ns, *point.memory_ns);
  point.bound = compute_ns > *point.memory_ns ? Bound::kCompute : Bound::kMemory;
  const bool short_kernel = calls > 0 && total_ns / calls < kShortKernelNs;
  if (*point.roof_ns < (short_kernel ? kLatencyRoofFrac : kFarFromRoofFrac) * total_ns) point.bound = Bound::kLatency;
  return point;
}

Bound kernel_bound(const KernelKey& key, const KernelSums& sums, const Works& works, const DeviceReport* device) {
  if (sums.kind != GpuOpKind::kKernel) return Bound::kCopy;  // kernels that copy or cast are passes over memory
  if (key.category == Category::kCommunication) return Bound::kComm;
  const double total_ns = static_cast<double>(sums.total_ns), calls = static_cast<double>(sums.calls);
  if (key.work != kNoRow && device != nullptr) {
    const RoofPoint point = place_on_roof(works.flops[key.work] * calls, works.bytes[key.work] * calls, total_ns, calls,
                                          device->peak_of(works.dtype[key.work]), device->bytes_per_s);
    if (point.bound != Bound::kUnknown) return point.bound;
  }
  const bool arithmetic = key.category == Category::kGemm || key.category == Category::kAttention ||
                          key.category == Category::kConvolution || key.category == Category::kOther;
  if (arithmetic) return total_ns < calls * kShortKernelNs / 2 ? Bound::kLatency : Bound::kUnknown;
  return total_ns < calls * kShortKernelNs ? Bound::kLatency : Bound::kMemory;
}

}  // namespace llmprof
