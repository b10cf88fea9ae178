// Power, temperature and clocks of one GPU, read through NVML every 50 ms by a thread of its own. Without NVML there
// are no readings.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "device/device.h"
#include "nvidia/device_uuid.h"
#include "nvidia/nvml_library.h"
#include "nvidia/nvml_reader.h"

namespace llmprof::device::cuda {

class TelemetryThread {
 public:
  // Where NVML has no such GPU, the only one of the machine is taken. Of a part of a GPU (MIG) temperature and clocks
  // are read, which all parts share; power, memory in use, and who uses it are of all parts together, and not known of
  // one.
  explicit TelemetryThread(const nvidia::DeviceUuids& uuids);
  ~TelemetryThread();
  TelemetryThread(const TelemetryThread&) = delete;
  TelemetryThread& operator=(const TelemetryThread&) = delete;

  const std::string& driver_version() const { return driver_version_; }  // empty: unknown
  double clock_max_mhz() const { return clock_max_mhz_; }                // 0: unknown

  // Means over the readings since then; the last one before, if there is none since.
  Telemetry since(int64_t monotonic_ns);
  std::vector<int64_t> other_processes() const;

 private:
  void run();

  std::optional<nvidia::NvmlLibrary> nvml_;
  std::optional<nvidia::NvmlReader> reader_;
  nvml::Device gpu_ = nullptr;
  bool is_part_ = false;
  std::string driver_version_;
  double clock_max_mhz_ = 0;
  std::optional<double> power_limit_w_;
  std::thread thread_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;
  struct Reading {
    int64_t monotonic_ns;
    nvidia::NvmlReading sample;
  };
  std::deque<Reading> readings_;  // of the last minute
};

// Names of the reasons that hold a clock down, of the bits that NVML gives; "idle" and clocks set by the user are none.
std::vector<std::string> throttle_reason_names(uint64_t bits);

}  // namespace llmprof::device::cuda
