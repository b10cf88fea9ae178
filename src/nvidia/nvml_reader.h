// Readings of one GPU through NVML. What the GPU or its driver does not offer is NaN or -1 in the reading, never an
// error and never 0 (throttle_reasons, a set of bits, is 0 where unknown; the cumulative counters tell -1).
//
// Some readings hold a lock of the driver that every allocation of device memory waits for: on an H200 the energy
// counter for 3 to 9 ms and the throttle counters for 0.7 ms, all others for nothing that can be seen
// (benchmarks/reading_stalls.py). So each of these two is left out until it has taken a thousandth of the time at most.
// nvmlDeviceGetPcieThroughput, which blocks for 20 ms, is not used: PCIe comes from GPM where the GPU has it (Hopper
// and later).
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "nvidia/nvml_library.h"

namespace llmprof::nvidia {

// One GPM metric as a column of gpu_samples (trace/tables.h): value in the column's unit = NVML's value * scale.
struct GpmColumn {
  const char* column;
  unsigned metric;
  double scale;
};
const std::vector<GpmColumn>& gpm_columns();

// Two GPM samples closer together than this give invalid values on Hopper.
constexpr int64_t kGpmPeriodMinNs = 100000000;

// What the device tells; NaN or -1 where the device does not tell.
struct NvmlReading {
  int64_t time_ns = 0;  // CLOCK_REALTIME
  float gpu_util_frac = 0, memory_util_frac = 0;
  float sm_clock_mhz = 0, memory_clock_mhz = 0;
  float power_w = 0;    // instantaneous where the driver has it
  double energy_j = 0;  // since driver load, cumulative
  float temperature_c = 0;
  float memory_temperature_c = 0;
  int64_t memory_used_bytes = -1;
  uint64_t throttle_reasons = 0;  // bits of nvmlDeviceGetCurrentClocksEventReasons
  // Cumulative nanoseconds, -1 unknown.
  int64_t throttle_power_ns = -1, throttle_thermal_sw_ns = -1, throttle_thermal_hw_ns = -1, throttle_brake_ns = -1,
          throttle_sync_boost_ns = -1;
  float pcie_rx_bytes_per_s = 0, pcie_tx_bytes_per_s = 0;
};

struct GpmReading {
  int64_t start_ns = 0, end_ns = 0;  // CLOCK_REALTIME
  std::vector<float> values;         // in the order of gpm_columns(); NaN: not reported
};

// When a reading that holds the driver's lock may be made again.
class LockingReading {
 public:
  static constexpr int64_t kTimesItsLength = 1000;
  bool due(int64_t monotonic_ns) const { return monotonic_ns >= due_ns_; }
  // `gpus`: so many are read by turns, and the lock is the same for all. Its shortest length counts: a longer one
  // waited for a CPU or for the lock.
  void took(int64_t begin_ns, int64_t end_ns, int gpus) {
    shortest_ns_ = std::min(shortest_ns_, end_ns - begin_ns);
    due_ns_ = end_ns + kTimesItsLength * gpus * shortest_ns_;
  }

 private:
  int64_t due_ns_ = 0, shortest_ns_ = 1'000'000'000;
};

class NvmlReader {
 public:
  // `driver_major` picks the ids of the throttle counters, which moved (nvml_abi.h); `gpus` is how many are read by
  // turns.
  NvmlReader(const NvmlApi& api, const NvmlGpu& gpu, int driver_major, int gpus = 1);
  ~NvmlReader();
  NvmlReader(NvmlReader&& other) noexcept;
  NvmlReader(const NvmlReader&) = delete;
  NvmlReader& operator=(const NvmlReader&) = delete;

  const NvmlGpu& gpu() const { return gpu_; }

  // PCIe rates are those of the last GPM reading. Energy and throttle counters are unknown where they are not due,
  // unless `everything` is asked for.
  NvmlReading read(bool everything = false);

  // True once the GPU is known to have GPM; it is found unsupported at the first failing call.
  bool has_gpm() const { return gpm_older_ != nullptr; }
  // Means over the time since the last successful call; values in the order of gpm_columns(). False if there is no GPM,
  // on the first call (which only sets the start), or less than kGpmPeriodMinNs after the last one; being a few
  // milliseconds early is waited for, so that a loop of 100 ms does not miss every other period by its jitter.
  bool read_gpm(GpmReading& reading);

 private:
  void read_fields(NvmlReading& sample, bool everything);
  void read_energy(NvmlReading& sample, bool everything);
  void free_gpm();

  const NvmlApi* api_;
  NvmlGpu gpu_;
  int gpus_;
  LockingReading energy_, throttle_;
  unsigned field_sw_thermal_ = 0, field_hw_thermal_ = 0, field_brake_ = 0;  // 0: this driver has no such counter
  nvml::GpmSample gpm_older_ = nullptr, gpm_newer_ = nullptr;
  int64_t gpm_older_ns_ = 0, gpm_older_monotonic_ns_ = 0;  // 0: none taken yet
  float pcie_rx_bytes_per_s_, pcie_tx_bytes_per_s_;
};

}  // namespace llmprof::nvidia
