// The roofline: attainable rate = min(peak, intensity x bandwidth) (Williams, Waterman and Patterson, CACM 52(4),
// 2009).
#pragma once

#include <optional>

#include "results/bound.h"

namespace llmprof {

// A kernel whose mean duration is below kShortKernelNs and that reaches less than kLatencyRoofFrac of its roof is
// called latency-bound: launching, ramping up and draining one grid takes 1.5 to 3 us on current GPUs whatever it
// computes, so under 6 us at least a quarter to a half of the time is that fixed cost and not the roof. So is any
// kernel below kFarFromRoofFrac: neither arithmetic nor memory is what it waits for (one thread block, a chain of
// dependent steps).
inline constexpr double kShortKernelNs = 6000;
inline constexpr double kLatencyRoofFrac = 0.25;
inline constexpr double kFarFromRoofFrac = 0.10;

struct RoofPoint {
  std::optional<double> compute_ns, memory_ns;  // time at peak and at bandwidth
  std::optional<double> roof_ns;  // the larger; absent unless both ceilings are known (flops 0 needs only bandwidth)
  Bound bound = Bound::kUnknown;
};

// Place of `flops` and `bytes`, done in `calls` kernels of total_ns altogether. Rates per second.
RoofPoint place_on_roof(double flops, double bytes, double total_ns, double calls, std::optional<double> flops_per_s,
                        std::optional<double> bytes_per_s);

}  // namespace llmprof
