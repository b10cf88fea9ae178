// Readings beside the program, prepared for questions about intervals of time: hardware counters (gpu_samples) and NVML
// (nvml_samples) of one device. Samples that overlap an interval partly count by the part that overlaps.
#pragma once

#include <string_view>
#include <vector>

#include "results/report.h"
#include "trace/trace.h"

namespace llmprof {

// Mean over time, of what was sampled.
struct TimeMean {
  double sum = 0, weight_ns = 0;
  void add(double value, double ns) {
    if (!(value >= 0)) return;  // NaN where not sampled
    sum += value * ns;
    weight_ns += ns;
  }
  OptDouble mean() const { return weight_ns > 0 ? OptDouble(sum / weight_ns) : std::nullopt; }
};

struct CounterSums {
  int64_t samples = 0;
  double covered_ns = 0;
  TimeMean gr_active, sm_active, tensor_active, dram, dram_bytes_per_s, l2_hit;
  TimeMean pcie_read, pcie_write, nvlink_rx, nvlink_tx;
  TimeMean tensor_cycles_per_s;  // of one SM
  TimeMean fma_per_s;            // warp instructions of the FMA pipes, all SMs
  TimeMean fma_flops_per_s;      // what they do at most; packed halves count fully only where they are sampled
  // About one in interval_ns(): where it was sampled more often, no more.
  std::vector<float> clocks_hz;
};

class CounterSamples {
 public:
  // PM samples of the device; those of GPM or DCGM where there are none. bytes_per_s: the memory's bandwidth, which
  // turns shares of the peak into bytes where the sampler gives only those.
  CounterSamples(const Trace& trace, int32_t device, OptDouble bytes_per_s);

  bool empty() const { return rows_.empty(); }
  bool gpm() const { return gpm_; }
  // "pm-sampling", "gpm" or "dcgm".
  const char* source() const { return dcgm_ ? "dcgm" : gpm_ ? "gpm" : "pm-sampling"; }
  const std::vector<Row>& rows() const { return rows_; }  // by start
  // The median over time of how long a sample is; 0 without samples.
  int64_t interval_ns() const { return interval_ns_; }
  // Adds what overlaps [start_ns, end_ns).
  void add(int64_t start_ns, int64_t end_ns, CounterSums& sums) const;
  // Memory traffic of one sample, NaN if not sampled.
  double dram_bytes_per_s(Row sample) const;
  double dram_frac(Row sample) const;
  // Warp instructions of all FMA pipes of one sample, NaN if not all of them were sampled.
  double fma_per_s(Row sample) const;

 private:
  const GpuSamples& table_;
  OptDouble bytes_per_s_;
  std::vector<Row> rows_;
  bool gpm_ = false, dcgm_ = false;  // DCGM's are read as those of GPM: means of a tenth of a second or more
  int64_t interval_ns_ = 0;
  int64_t longest_ns_ = 0;
};

// What a cycle with an active tensor pipe does at most: multiply-adds of dense products, counted as two, of one SM.
// FP16 and BF16: 1,024 (compute capability 7.x, 8.6, 8.9, 12.x), 2,048 (8.0), 4,096 (9.0), 8,192 (10.x), from the
// peaks, SMs and clocks of data sheets (docs/formulas.md); TF32 half, 8 bits twice, 4 bits four times (six on 10.3),
// FP64 128 (8.0, 10.x) and 256 (9.0). FP32 as BF16, of which libraries compose it; plain FP32 does not use the pipe.
// Parts whose data sheet is capped below that (GeForce with FP32 accumulation, H20) have the same pipe. Empty: the part
// or the type is not known.
OptDouble tensor_flops_per_cycle(std::string_view compute_capability, DType dtype);

// A quantity that NVML reads now and then: linear between readings, constant for up to kReachNs beyond the first and
// the last one, unknown further out.
class Readings {
 public:
  static constexpr int64_t kReachNs = 250'000'000;  // sensors refresh every 100 ms; two of those and some

  void add(int64_t time_ns, double value) {
    times_.push_back(time_ns);
    values_.push_back(value);
  }
  size_t size() const { return times_.size(); }
  bool covers(int64_t start_ns, int64_t end_ns) const;
  // Whether there is a hole in it, as where a log was stopped and started again: what lies between is not known.
  bool broken(int64_t start_ns, int64_t end_ns) const;
  double at(int64_t time_ns) const;
  // Integral over time, value x seconds. Only where covers().
  double integral(int64_t start_ns, int64_t end_ns) const;
  // Readings with a time in [start_ns, end_ns), and their times.
  std::vector<int64_t> collect(int64_t start_ns, int64_t end_ns, std::vector<double>& out) const;

 private:
  std::vector<int64_t> times_;
  std::vector<double> values_;
};

// How far apart the earliest and the latest moment lie at which a reading may have been taken; 0 where they are timed
// exactly. A log beside a recording is placed by the resolution of its times.
int64_t readings_uncertain_ns(const Trace& trace);

// Whether the device is a part of a divided GPU (MIG). Clocks, temperature and throttling are the whole GPU's and its
// own; power, energy, utilisation, memory in use and PCIe are of all parts together, and say nothing of one.
bool is_part_of_gpu(const Trace& trace, int32_t device);

struct NvmlReadings {
  NvmlReadings(const Trace& trace, int32_t device);
  std::vector<Row> rows;  // by time
  Readings power_w, energy_j, sm_clock_mhz, memory_clock_mhz, temperature_c, memory_temperature_c, gpu_util_frac,
      memory_used_bytes, pcie_rx, pcie_tx;
};

// Per kernel group (Groups::kernels): samples of which at least 80 % lie in instances of that kernel while no other
// ran.
struct KernelSamples {
  int64_t samples = 0;
  TimeMean dram_bytes_per_s, tensor_active;
};
struct Groups;
std::vector<KernelSamples> kernel_counters(const Trace& trace, const Groups& groups, int32_t device,
                                           OptDouble bytes_per_s);

// Fewer samples are not shown for a kernel: 100 us samples next to kernels of similar length scatter.
inline constexpr int64_t kKernelSamplesMin = 5;

}  // namespace llmprof
