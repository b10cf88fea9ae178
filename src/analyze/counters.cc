#include "analyze/counters.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <utility>

#include "analyze/groups.h"

namespace llmprof {
namespace {

constexpr double kInsideMin = 0.8;              // share of a sample in one kernel
constexpr double kConcurrencyMax = 1.02;        // kernels that ran within a sample may add up to this much of it
constexpr double kFlopsPerFmaInstruction = 64;  // 32 lanes, a multiply-add counts as two
constexpr size_t kKernelsPerSampleMax = 32;     // more cannot leave 80 % to one

// Half of the time was sampled in lengths of this or less: samples may be as many in a second of short ones as in ten
// of the long ones that follow them.
int64_t usual_length_ns(std::vector<int64_t> lengths) {
  std::sort(lengths.begin(), lengths.end());
  int64_t left_ns = std::accumulate(lengths.begin(), lengths.end(), int64_t{0}) / 2;
  for (const int64_t length_ns : lengths)
    if ((left_ns -= length_ns) <= 0) return length_ns;
  return 0;
}

double sum_of(float read, float write) { return static_cast<double>(read) + static_cast<double>(write); }

}  // namespace

CounterSamples::CounterSamples(const Trace& trace, int32_t device, OptDouble bytes_per_s)
    : table_(trace.gpu_samples), bytes_per_s_(bytes_per_s) {
  bool pm = false;
  for (Row row = 0; row < table_.size(); ++row) {
    if (table_.device[row] == device && table_.source[row] == CounterSource::kPmSampling && table_.dur_ns[row] > 0)
      pm = true;
  }
  gpm_ = !pm;
  std::vector<int64_t> lengths;
  for (Row row = 0; row < table_.size(); ++row) {
    if (table_.device[row] != device || table_.dur_ns[row] <= 0) continue;
    if ((table_.source[row] == CounterSource::kPmSampling) != pm) continue;
    rows_.push_back(row);
    lengths.push_back(table_.dur_ns[row]);
  }
  const auto before = [&](Row a, Row b) { return table_.start_ns[a] < table_.start_ns[b]; };
  if (!std::is_sorted(rows_.begin(), rows_.end(), before)) std::stable_sort(rows_.begin(), rows_.end(), before);
  if (lengths.empty()) return;
  dcgm_ = table_.source[rows_.front()] == CounterSource::kDcgm;
  longest_ns_ = *std::max_element(lengths.begin(), lengths.end());
  interval_ns_ = usual_length_ns(std::move(lengths));
}

double CounterSamples::dram_frac(Row sample) const {
  if (table_.source[sample] == CounterSource::kDcgm) return static_cast<double>(table_.dram_active_frac[sample]);
  const double frac = sum_of(table_.dram_read_frac[sample], table_.dram_write_frac[sample]);
  if (!std::isnan(frac) || !bytes_per_s_) return frac;
  return sum_of(table_.dram_read_bytes_per_s[sample], table_.dram_write_bytes_per_s[sample]) / *bytes_per_s_;
}

double CounterSamples::dram_bytes_per_s(Row sample) const {
  const double rate = sum_of(table_.dram_read_bytes_per_s[sample], table_.dram_write_bytes_per_s[sample]);
  if (!std::isnan(rate) || !bytes_per_s_) return rate;
  return sum_of(table_.dram_read_frac[sample], table_.dram_write_frac[sample]) * *bytes_per_s_;
}

double CounterSamples::fma_per_s(Row sample) const {
  const double all = static_cast<double>(table_.fma_instructions_per_s[sample]);
  if (!std::isnan(all)) return all;
  return sum_of(table_.fma_heavy_instructions_per_s[sample], table_.fma_lite_instructions_per_s[sample]);
}

void CounterSamples::add(int64_t start_ns, int64_t end_ns, CounterSums& sums) const {
  std::vector<Row>::const_iterator it =
      std::lower_bound(rows_.begin(), rows_.end(), start_ns - longest_ns_,
                       [&](Row row, int64_t time) { return table_.start_ns[row] < time; });
  int64_t next_clock_ns = std::numeric_limits<int64_t>::min();
  for (; it != rows_.end() && table_.start_ns[*it] < end_ns; ++it) {
    const Row row = *it;
    const int64_t overlap =
        std::min(end_ns, table_.start_ns[row] + table_.dur_ns[row]) - std::max(start_ns, table_.start_ns[row]);
    if (overlap <= 0) continue;
    const double ns = static_cast<double>(overlap);
    ++sums.samples;
    sums.covered_ns += ns;
    sums.gr_active.add(static_cast<double>(table_.gr_active_frac[row]), ns);
    const double sm = static_cast<double>(table_.sm_active_frac[row]);
    sums.sm_active.add(sm, ns);
    sums.tensor_active.add(static_cast<double>(table_.tensor_active_frac[row]), ns);
    sums.dram.add(dram_frac(row), ns);
    sums.dram_bytes_per_s.add(dram_bytes_per_s(row), ns);
    // The rate of an idle cache says nothing.
    sums.l2_hit.add(static_cast<double>(table_.l2_hit_frac[row]), sm >= 0 ? ns * sm : ns);
    sums.pcie_read.add(static_cast<double>(table_.pcie_read_bytes_per_s[row]), ns);
    sums.pcie_write.add(static_cast<double>(table_.pcie_write_bytes_per_s[row]), ns);
    sums.nvlink_rx.add(static_cast<double>(table_.nvlink_rx_bytes_per_s[row]), ns);
    sums.nvlink_tx.add(static_cast<double>(table_.nvlink_tx_bytes_per_s[row]), ns);
    sums.tensor_cycles_per_s.add(
        static_cast<double>(table_.tensor_active_frac[row]) * static_cast<double>(table_.sm_clock_hz[row]), ns);
    // The one counter of all FMA pipes counts an instruction on packed halves twice by itself (measured on an H200);
    // of counters for each pipe that is not known, so packed halves are added: it is an upper bound.
    const bool one_counter = !std::isnan(table_.fma_instructions_per_s[row]);
    const double fma = fma_per_s(row), half = static_cast<double>(table_.fma_half_instructions_per_s[row]);
    sums.fma_per_s.add(fma, ns);
    sums.fma_flops_per_s.add(kFlopsPerFmaInstruction * (fma + (!one_counter && half >= 0 ? half : 0)), ns);
    if (table_.sm_clock_hz[row] > 0 && table_.start_ns[row] >= next_clock_ns) {
      sums.clocks_hz.push_back(table_.sm_clock_hz[row]);
      next_clock_ns = table_.start_ns[row] + interval_ns_ / 4 * 3;
    }
  }
}

OptDouble tensor_flops_per_cycle(std::string_view compute_capability, DType dtype) {
  struct Pipe {
    std::string_view capability;
    double half, fp4, fp64;  // FLOP per SM and cycle; 0: not by this pipe
  };
  static constexpr Pipe kPipes[] = {{"7.0", 1024, 0, 0},        {"7.5", 1024, 4096, 0},     {"8.0", 2048, 8192, 128},
                                    {"8.6", 1024, 4096, 0},     {"8.9", 1024, 4096, 0},     {"9.0", 4096, 16384, 256},
                                    {"10.0", 8192, 32768, 128}, {"10.3", 8192, 49152, 128}, {"12.0", 1024, 4096, 0},
                                    {"12.1", 1024, 4096, 0}};
  for (const Pipe& pipe : kPipes) {
    if (pipe.capability != compute_capability) continue;
    const auto known = [](double rate) { return rate > 0 ? OptDouble(rate) : std::nullopt; };
    switch (dtype) {
      case DType::kFp16:
      case DType::kBf16:
      case DType::kFp32:
        return pipe.half;
      case DType::kTf32:
        return pipe.half / 2;
      case DType::kFp8:
      case DType::kInt8:
        return pipe.half * 2;
      case DType::kInt4:
      case DType::kFp4:
        return known(pipe.fp4);
      case DType::kFp64:
        return known(pipe.fp64);
      default:
        return std::nullopt;
    }
  }
  return std::nullopt;
}

bool Readings::covers(int64_t start_ns, int64_t end_ns) const {
  return times_.size() >= 2 && times_.front() - kReachNs <= start_ns && end_ns <= times_.back() + kReachNs;
}

bool Readings::broken(int64_t start_ns, int64_t end_ns) const {
  constexpr int64_t kHoleNsMin = 2'000'000'000, kUsualGaps = 10;
  std::vector<int64_t> gaps;
  for (size_t i = 1; i < times_.size(); ++i)
    if (times_[i] > start_ns && times_[i - 1] < end_ns) gaps.push_back(times_[i] - times_[i - 1]);
  if (gaps.empty()) return false;
  const auto middle = gaps.begin() + static_cast<std::ptrdiff_t>(gaps.size() / 2);
  std::nth_element(gaps.begin(), middle, gaps.end());
  const int64_t usual = *middle;
  const int64_t longest = *std::max_element(gaps.begin(), gaps.end());
  return longest > kHoleNsMin && longest / kUsualGaps > usual;
}

double Readings::at(int64_t time_ns) const {
  const std::vector<int64_t>::const_iterator it = std::lower_bound(times_.begin(), times_.end(), time_ns);
  if (it == times_.begin()) return values_.front();
  if (it == times_.end()) return values_.back();
  const size_t i = static_cast<size_t>(it - times_.begin());
  const double part = static_cast<double>(time_ns - times_[i - 1]) / static_cast<double>(times_[i] - times_[i - 1]);
  return values_[i - 1] + part * (values_[i] - values_[i - 1]);
}

double Readings::integral(int64_t start_ns, int64_t end_ns) const {
  double sum = 0, value = at(start_ns);
  int64_t time = start_ns;
  size_t i = static_cast<size_t>(std::upper_bound(times_.begin(), times_.end(), start_ns) - times_.begin());
  while (time < end_ns) {
    const int64_t next = i < times_.size() ? std::min(end_ns, times_[i]) : end_ns;
    const double reached = at(next);
    sum += (value + reached) / 2 * static_cast<double>(next - time) / 1e9;
    time = next;
    value = reached;
    ++i;
  }
  return sum;
}

std::vector<int64_t> Readings::collect(int64_t start_ns, int64_t end_ns, std::vector<double>& out) const {
  const auto first = std::lower_bound(times_.begin(), times_.end(), start_ns);
  const auto last = std::lower_bound(first, times_.end(), end_ns);
  for (auto time = first; time != last; ++time) out.push_back(values_[static_cast<size_t>(time - times_.begin())]);
  return {first, last};
}

int64_t readings_uncertain_ns(const Trace& trace) {
  constexpr int64_t kMost = 60'000'000'000;
  int64_t out = 0;
  for (const int64_t uncertain_ns : trace.files_joined.uncertain_ns) out = std::max(out, uncertain_ns);
  return std::min(out, kMost);
}

bool is_part_of_gpu(const Trace& trace, int32_t device) {
  const Devices& devices = trace.devices;
  for (Row row = 0; row < devices.size(); ++row)
    if (devices.device[row] == device) return devices.whole_uuid[row] != StringId::kEmpty;
  return false;
}

NvmlReadings::NvmlReadings(const Trace& trace, int32_t device) {
  const bool part = is_part_of_gpu(trace, device);
  const NvmlSamples& table = trace.nvml_samples;
  for (Row row = 0; row < table.size(); ++row) {
    if (table.device[row] == device) rows.push_back(row);
  }
  std::stable_sort(rows.begin(), rows.end(), [&](Row a, Row b) { return table.time_ns[a] < table.time_ns[b]; });
  const auto add = [](Readings& readings, int64_t time_ns, double value) {
    if (value >= 0) readings.add(time_ns, value);
  };
  int64_t last = INT64_MIN;
  for (const Row row : rows) {
    const int64_t time = table.time_ns[row];
    if (time == last) continue;  // two readings of one moment: the first counts
    last = time;
    add(sm_clock_mhz, time, static_cast<double>(table.sm_clock_mhz[row]));
    add(memory_clock_mhz, time, static_cast<double>(table.memory_clock_mhz[row]));
    add(temperature_c, time, static_cast<double>(table.temperature_c[row]));
    add(memory_temperature_c, time, static_cast<double>(table.memory_temperature_c[row]));
    if (part) continue;
    add(power_w, time, static_cast<double>(table.power_w[row]));
    add(energy_j, time, table.energy_j[row]);
    add(gpu_util_frac, time, static_cast<double>(table.gpu_util_frac[row]));
    add(memory_used_bytes, time, static_cast<double>(table.memory_used_bytes[row]));
    add(pcie_rx, time, static_cast<double>(table.pcie_rx_bytes_per_s[row]));
    add(pcie_tx, time, static_cast<double>(table.pcie_tx_bytes_per_s[row]));
  }
}

std::vector<KernelSamples> kernel_counters(const Trace& trace, const Groups& groups, int32_t device,
                                           OptDouble bytes_per_s) {
  std::vector<KernelSamples> out(groups.kernels.size());
  if (trace.gpu_samples.empty()) return out;
  const CounterSamples counters(trace, device, bytes_per_s);
  if (counters.empty() || counters.gpm()) return out;
  std::vector<GpuOpId> gpu;
  for (Row row = 0; row < trace.gpu_ops.size(); ++row) {
    if (trace.device_of(row) == device) gpu.push_back(row);
  }
  const GpuSamples& table = trace.gpu_samples;
  size_t next = 0;  // first activity that starts at or after the end of the sample
  for (const Row sample : counters.rows()) {
    const int64_t start = table.start_ns[sample], end = start + table.dur_ns[sample];
    while (next < gpu.size() && trace.gpu_ops.start_ns[gpu[next]] < end) ++next;
    const double length = static_cast<double>(end - start);
    double all = 0, most = 0;
    Row longest = kNoRow;
    size_t seen = 0;
    for (size_t i = next; i-- > 0 && seen < kKernelsPerSampleMax; ++seen) {
      const int64_t overlap = std::min(end, trace.end_of(gpu[i])) - std::max(start, trace.gpu_ops.start_ns[gpu[i]]);
      if (overlap <= 0) continue;
      const double ns = static_cast<double>(overlap);
      all += ns;
      if (ns <= most) continue;
      most = ns;
      longest = gpu[i];
    }
    if (longest == kNoRow || most < kInsideMin * length || all > kConcurrencyMax * length) continue;
    KernelSamples& kernel = out[groups.kernel_of[longest]];
    ++kernel.samples;
    kernel.dram_bytes_per_s.add(counters.dram_bytes_per_s(sample), length);
    kernel.tensor_active.add(static_cast<double>(table.tensor_active_frac[sample]), length);
  }
  return out;
}

}  // namespace llmprof
