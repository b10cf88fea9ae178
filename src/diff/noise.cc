#include "diff/noise.h"

#include <algorithm>
#include <cmath>

namespace llmprof::diff {

double deviation_of(double host_frac, bool full_pace) {
  const double host = std::clamp(host_frac, 0.0, 1.0);
  const double of_host = host * (full_pace ? kHostFullPaceDeviation : kHostDeviation);
  const double of_gpu = (1 - host) * kGpuDeviation;
  // Not std::hypot, which asks for glibc 2.35.
  return std::sqrt(of_host * of_host + of_gpu * of_gpu);
}

bool at_full_pace(const std::optional<double>& cpu_slow_frac) { return cpu_slow_frac && *cpu_slow_frac < kSeldomSlow; }

}  // namespace llmprof::diff
