#include "diff/noise.h"

#include <algorithm>
#include <cmath>

namespace llmprof::diff {

double deviation_of(double host_frac, bool full_pace) {
  const double host = std::clamp(host_frac, 0.0, 1.0);
  return std::hypot(host * (full_pace ? kHostFullPaceDeviation : kHostDeviation), (1 - host) * kGpuDeviation);
}

bool at_full_pace(const std::optional<double>& cpu_slow_frac) { return cpu_slow_frac && *cpu_slow_frac < kSeldomSlow; }

}  // namespace llmprof::diff
