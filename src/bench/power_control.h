// When the control of a GPU's power corrects too far. It reads the power about once a second: after load begins the
// clock falls by 20 % at 0.9 s for a quarter of a second, by 8 and 5 % one and two periods later, and by less from then
// on (times of one product on H200s: docs/results/h200_bench_noise.json, "control"; the same periods were seen in every
// case).
#pragma once

#include <cstdint>

namespace llmprof::bench {

constexpr double kPowerPeriodS = 0.92;  // between two corrections

class PowerControl {
 public:
  // Load began, of a device whose control is waited for.
  explicit PowerControl(int64_t began_ns);
  // One that nothing is known of, or where there is no time to wait: it never corrects.
  PowerControl() = default;

  // The end of its first correction; the beginning of time where there is none.
  int64_t acted_ns() const { return corrected_ns_; }
  // The earliest time, not before `now_ns`, from which so many seconds are clear of the first corrections.
  int64_t clear_from(int64_t now_ns, double seconds) const;

 private:
  bool corrects_ = false;
  int64_t began_ns_ = 0, corrected_ns_ = 0;
};

}  // namespace llmprof::bench
