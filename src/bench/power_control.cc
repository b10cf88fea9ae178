#include "bench/power_control.h"

#include <cmath>

namespace llmprof::bench {
namespace {

constexpr double kBeforeS = 0.09, kAfterS = 0.2;  // of a turn's end: where the clock is low
constexpr int kActs = 3;

int64_t ns(double seconds) { return static_cast<int64_t>(std::llround(seconds * 1e9)); }

}  // namespace

PowerControl::PowerControl(int64_t began_ns)
    : acts_(true), began_ns_(began_ns), acted_ns_(began_ns + ns(kPowerTurnS + kAfterS)) {}

int64_t PowerControl::clear_from(int64_t now_ns, double seconds) const {
  if (!acts_) return now_ns;
  for (int act = 1; act <= kActs; ++act) {
    const int64_t low_ns = began_ns_ + ns(act * kPowerTurnS - kBeforeS),
                  high_ns = began_ns_ + ns(act * kPowerTurnS + kAfterS);
    if (now_ns < high_ns && now_ns + ns(seconds) > low_ns) now_ns = high_ns;
  }
  return now_ns;
}

}  // namespace llmprof::bench
