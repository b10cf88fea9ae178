#include "hardware/roofline.h"

#include <algorithm>

namespace llmprof {

RoofPoint place_on_roof(double flops, double bytes, double total_ns, double calls, std::optional<double> flops_per_s,
                        std::optional<double> bytes_per_s) {
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

}  // namespace llmprof
