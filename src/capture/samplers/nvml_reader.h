// Readings of one GPU through NVML, as spool records. What the GPU or its driver does not offer is NaN or -1 in the
// record, never an error and never 0 (throttle_reasons, a set of bits, is 0 where unknown; the cumulative counters tell
// -1). Each reading costs well under a millisecond per GPU, mostly the energy counter; nvmlDeviceGetPcieThroughput,
// which blocks for 20 ms, is not used: PCIe comes from GPM where the GPU has it (Hopper and later).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "capture/samplers/nvml_library.h"
#include "capture/spool/records.h"

namespace llmprof::samplers {

// One GPM metric as a column of gpu_samples (trace/tables.h): value in the column's unit = NVML's value * scale.
struct GpmColumn {
  const char* column;
  unsigned metric;
  double scale;
};
const std::vector<GpmColumn>& gpm_columns();

// Two GPM samples closer together than this give invalid values on Hopper.
constexpr int64_t kGpmPeriodMinNs = 100000000;

class NvmlReader {
 public:
  // `driver_major` picks the ids of the throttle counters, which moved (abi/nvml_abi.h).
  NvmlReader(const NvmlApi& api, const NvmlGpu& gpu, int driver_major);
  ~NvmlReader();
  NvmlReader(NvmlReader&& other) noexcept;
  NvmlReader(const NvmlReader&) = delete;
  NvmlReader& operator=(const NvmlReader&) = delete;

  const NvmlGpu& gpu() const { return gpu_; }

  // Everything but the ids. PCIe rates are those of the last GPM reading.
  spool::NvmlSample read();

  // True once the GPU is known to have GPM; it is found unsupported at the first failing call.
  bool has_gpm() const { return gpm_older_ != nullptr; }
  // Means over the time since the last successful call; values in the order of gpm_columns(). False if there is no GPM,
  // on the first call (which only sets the start), or less than kGpmPeriodMinNs after the last one; being a few
  // milliseconds early is waited for, so that a loop of 100 ms does not miss every other period by its jitter.
  bool read_gpm(spool::GpuSample& sample);

 private:
  void read_fields(spool::NvmlSample& sample);
  void free_gpm();

  const NvmlApi* api_;
  NvmlGpu gpu_;
  unsigned field_sw_thermal_ = 0, field_hw_thermal_ = 0, field_brake_ = 0;  // 0: this driver has no such counter
  nvml::GpmSample gpm_older_ = nullptr, gpm_newer_ = nullptr;
  int64_t gpm_older_ns_ = 0, gpm_older_monotonic_ns_ = 0;  // 0: none taken yet
  float pcie_rx_bytes_per_s_, pcie_tx_bytes_per_s_;
};

}  // namespace llmprof::samplers
