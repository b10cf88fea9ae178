#include "diff/noise.h"

#include <algorithm>
#include <cmath>

namespace llmprof::diff {

Noise noise_of(const FigureOf& figure) {
  const Noise& host = figure.unsure                        ? kUnsureNoise
                      : figure.at_pace                     ? kAtPaceNoise
                      : figure.full_pace && !figure.on_cpu ? kHostFullPaceNoise
                                                           : kHostNoise;
  const double of_host = figure.on_cpu ? 1 : std::clamp(figure.host_frac, 0.0, 1.0);
  const auto both = [&](double Noise::*quantile) {
    const double a = of_host * host.*quantile, b = (1 - of_host) * kGpuNoise.*quantile;
    return std::sqrt(a * a + b * b);  // not std::hypot, which asks for glibc 2.35
  };
  return {both(&Noise::p90), both(&Noise::p95), both(&Noise::p98)};
}

bool at_full_pace(const std::optional<double>& cpu_slow_frac) { return cpu_slow_frac && *cpu_slow_frac < kSeldomSlow; }

bool is_contended(const std::optional<double>& cpu_waited_frac) {
  return cpu_waited_frac && *cpu_waited_frac > kContended;
}

}  // namespace llmprof::diff
