// When the sampling interval follows the program's steps. Sampling begins before they are known, and every sample costs
// the host as much as any other: a program of long steps is to be sampled seldomer, at the price of the gap that
// another session takes. So the change must be worth it, the steps must have settled, and recorded ones keep their
// counters where a moment without them comes soon.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>

namespace llmprof::samplers {

class StepInterval {
 public:
  // The interval to change to now; 0 to stay. step_ns: what a usual step takes, 0 not known; suits_ns: the interval
  // that suits it; recorded: kernels are being recorded. The answer counts as followed.
  int64_t due(int64_t now_ns, int64_t step_ns, int64_t suits_ns, int64_t interval_ns, bool recorded) {
    if (step_ns <= 0 || std::abs(step_ns - seen_ns_) > seen_ns_ / 3) {
      seen_ns_ = std::max<int64_t>(step_ns, 0);
      seen_at_ns_ = now_ns;
      return 0;
    }
    const int64_t least_ns = changes_ == 0 ? interval_ns + interval_ns / 2 : 2 * interval_ns;
    const int64_t settled_for_ns = now_ns - seen_at_ns_ - kSettledNs;
    if (changes_ == kChangesMost || suits_ns < least_ns || settled_for_ns < 0) return 0;
    if (recorded && settled_for_ns < kWaitMostNs) return 0;
    ++changes_;
    return suits_ns;
  }

  static constexpr int64_t kSettledNs = 1'000'000'000, kWaitMostNs = 3'000'000'000;
  static constexpr int kChangesMost = 3;

 private:
  int64_t seen_ns_ = 0, seen_at_ns_ = 0;
  int changes_ = 0;
};

}  // namespace llmprof::samplers
