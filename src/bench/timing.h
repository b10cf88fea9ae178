// One regime of one case: settled, timed in batches until the stop rule holds, throttled samples set apart.
#pragma once

#include <atomic>

#include "bench/protocol.h"

namespace llmprof::bench {

struct Work {
  std::function<Status(int set)> enqueue;
  int sets = 1;
  double us = 0;  // of one execution, roughly: sizes batches and graphs
};

int64_t monotonic_ns();  // what Device::telemetry counts from

// The clock was not what it would have been, for one reason, in more than such a share of the readings.
bool held_down(const device::Telemetry& telemetry, double more_than_frac = 0);

// Executions in one cold sample: several where one is too short to be timed by itself.
int cold_launches(const Work& work);
// After so long a stretch of isolated trials. A GPU that takes one after the other reaches its power limit, as if they
// were not isolated. A CPU does not rest: its threads would go to sleep.
void rest(const device::Device& device, double busy_s, double duty_max);

// Runs the work until clock and power hold still (the times themselves where the device tells neither), at most
// `settle_max_s`. False: they did not.
Result<bool> settle(device::Device& device, const Work& work, const Protocol& protocol, const std::atomic<bool>& stop);

// Empty samples only if `stop` came first.
Result<Timing> time_cold(device::Device& device, const Work& work, const Protocol& protocol,
                         const std::atomic<bool>& stop);
Result<Timing> time_sustained(device::Device& device, const Work& work, const Protocol& protocol,
                              const std::atomic<bool>& stop);

// At most `count`, evenly spread, the order kept.
std::vector<double> thin(const std::vector<double>& values, size_t count);

}  // namespace llmprof::bench
