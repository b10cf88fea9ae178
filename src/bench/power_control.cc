#include "bench/power_control.h"

#include <cmath>

namespace llmprof::bench {
namespace {

constexpr double kBeforeS = 0.09, kAfterS = 0.2;  // of a period's end: where the clock is low
constexpr int kCorrections = 3;

int64_t ns(double seconds) { return static_cast<int64_t>(std::llround(seconds * 1e9)); }

}  // namespace

PowerControl::PowerControl(int64_t began_ns)
    : corrects_(true), began_ns_(began_ns), corrected_ns_(began_ns + ns(kPowerPeriodS + kAfterS)) {}

int64_t PowerControl::clear_from(int64_t now_ns, double seconds) const {
  if (!corrects_) return now_ns;
  for (int correction = 1; correction <= kCorrections; ++correction) {
    const int64_t low_ns = began_ns_ + ns(correction * kPowerPeriodS - kBeforeS),
                  high_ns = began_ns_ + ns(correction * kPowerPeriodS + kAfterS);
    if (now_ns < high_ns && now_ns + ns(seconds) > low_ns) now_ns = high_ns;
  }
  return now_ns;
}

}  // namespace llmprof::bench
