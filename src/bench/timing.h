// One regime of one case: settled, timed in batches until the stop rule holds, throttled samples set apart.
#pragma once

#include <atomic>

#include "bench/power_control.h"
#include "bench/protocol.h"
#include "bench/stop_rule.h"

namespace llmprof::bench {

struct Work {
  std::function<Status(int set)> enqueue;
  int sets = 1;
  double us = 0;  // of one execution, roughly: sizes batches and graphs
};

// Seconds of a device's clock since it was made.
class Stopwatch {
 public:
  explicit Stopwatch(const device::Device& device) : device_(&device), start_ns_(device.now_ns()) {}
  double seconds() const { return static_cast<double>(device_->now_ns() - start_ns_) * 1e-9; }
  int64_t start_ns() const { return start_ns_; }

 private:
  const device::Device* device_;
  int64_t start_ns_;
};

// For how the device is now: several readings, less than a period of its control.
constexpr int64_t kLookBackNs = 300'000'000;

// The clock was not what it would have been, for one reason, in some of the readings or in most of them.
bool held_down(const device::Telemetry& telemetry);
bool mostly_held_down(const device::Telemetry& telemetry);

// Executions in one sample of a loop: about so long, and every set equally often where that is short enough; else half
// as long, if the sets are visited in fewer samples then.
int loop_launches(const Work& work, double sample_us);
// The same of what is timed in earnest. On a CPU samples are short, so that some lie between the time slices that other
// programs have on its cores, and the sets go on from one to the next.
int sustained_launches(const device::Device& device, const Work& work);
// More than a sample is trusted to: its threads waited for a core, where that is known.
bool waited_too_long(const device::Sample& sample);
// Executions in one cold sample: several where one is too short to be timed by itself.
int cold_launches(const Work& work);
// After so long a stretch of isolated trials. A GPU that takes one after the other reaches its power limit, as if they
// were not isolated. A CPU does not rest: its threads would go to sleep.
void rest(const device::Device& device, double busy_s, double duty_max);

// Runs the work until clock and power hold still (the times themselves where the device tells neither), at most
// `settle_max_s`. False: they did not. Near the power limit nothing holds still before the control has acted.
Result<bool> settle(device::Device& device, const Work& work, const Protocol& protocol, const PowerControl& control,
                    const std::atomic<bool>& stop);
// Runs the work until then.
Status keep_busy(device::Device& device, const Work& work, int64_t until_ns, const std::atomic<bool>& stop);

// The samples of one regime. The control of power goes too far at first: of a device that is held down, sustained
// samples from before it has acted do not count.
class RegimeTimer {
 public:
  RegimeTimer(device::Device& device, Work work, Regime regime, const Protocol& protocol, const PowerControl& control,
              const std::atomic<bool>& stop);
  // Until there are samples enough.
  Status take();
  // Of what was taken; not a number before.
  double median_us() const;
  // At a limit, what was seen before tells nothing: the clock was another.
  bool comparable() const { return cold() || !limited_; }
  // Once they are taken; not after `stop`.
  Timing finish();

 private:
  bool cold() const { return timing_.regime == Regime::kCold; }

  device::Device& device_;
  Work work_;
  const Protocol& protocol_;
  const std::atomic<bool>& stop_;
  PowerControl control_;
  double min_s_;
  std::optional<StopRule> rule_;
  Timing timing_;
  std::vector<device::Sample> samples_;
  device::Telemetry telemetry_;
  bool limited_ = false;
};

// At most `count`, evenly spread, the order kept.
std::vector<double> thin(const std::vector<double>& values, size_t count);

}  // namespace llmprof::bench
