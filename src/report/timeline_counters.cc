#include "report/timeline_counters.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace llmprof::timeline {
namespace {

constexpr size_t kSamplesMost = 60'000;  // of one counter
constexpr size_t kNamesMost = 64;        // counters that a recording names itself
constexpr float kUnknown = std::numeric_limits<float>::quiet_NaN();

template <class Table>
struct Column {
  const char* name;
  const char* unit;
  std::vector<float> Table::*values;
  float scale;
};

constexpr Column<GpuSamples> kSampled[] = {{"DRAM traffic", "%", &GpuSamples::dram_active_frac, 100},
                                           {"DRAM reads", "%", &GpuSamples::dram_read_frac, 100},
                                           {"DRAM writes", "%", &GpuSamples::dram_write_frac, 100},
                                           {"Tensor pipe", "%", &GpuSamples::tensor_active_frac, 100},
                                           {"SMs active", "%", &GpuSamples::sm_active_frac, 100},
                                           {"Warps resident", "%", &GpuSamples::warps_active_frac, 100},
                                           {"L2 hits", "%", &GpuSamples::l2_hit_frac, 100},
                                           {"PCIe reads", "GB/s", &GpuSamples::pcie_read_bytes_per_s, 1e-9F},
                                           {"PCIe writes", "GB/s", &GpuSamples::pcie_write_bytes_per_s, 1e-9F},
                                           {"NVLink received", "GB/s", &GpuSamples::nvlink_rx_bytes_per_s, 1e-9F},
                                           {"NVLink sent", "GB/s", &GpuSamples::nvlink_tx_bytes_per_s, 1e-9F},
                                           {"SM clock, sampled", "MHz", &GpuSamples::sm_clock_hz, 1e-6F}};
constexpr Column<NvmlSamples> kRead[] = {{"Power", "W", &NvmlSamples::power_w, 1},
                                         {"SM clock", "MHz", &NvmlSamples::sm_clock_mhz, 1},
                                         {"Memory clock", "MHz", &NvmlSamples::memory_clock_mhz, 1},
                                         {"Temperature", "C", &NvmlSamples::temperature_c, 1}};

void add_value(Counter& counter, int64_t time_ns, float value) {
  const bool known = std::isfinite(value);
  if (!known && (counter.values.empty() || std::isnan(counter.values.back()))) return;
  counter.times_ns.push_back(time_ns);
  counter.values.push_back(known ? value : kUnknown);
}

// Pairs of neighbours become their mean.
void thin(Counter& counter) {
  while (counter.values.size() > kSamplesMost) {
    size_t kept = 0;
    for (size_t at = 0; at < counter.values.size(); ++at) {
      const bool pair =
          at + 1 < counter.values.size() && !std::isnan(counter.values[at]) && !std::isnan(counter.values[at + 1]);
      counter.times_ns[kept] = counter.times_ns[at];
      counter.values[kept++] = pair ? (counter.values[at] + counter.values[at + 1]) / 2 : counter.values[at];
      if (pair) ++at;
    }
    const bool same = kept == counter.values.size();
    counter.times_ns.resize(kept);
    counter.values.resize(kept);
    if (same) return;  // nothing but single values between unknown time
  }
}

void keep(Counter&& counter, Timeline& out) {
  const auto known = [](float value) { return !std::isnan(value); };
  if (std::none_of(counter.values.begin(), counter.values.end(), known)) return;
  thin(counter);
  out.counters.push_back(std::move(counter));
}

// A counter of two sources is that of the shorter intervals: GPM's hold a tenth of a second.
CounterSource source_of(const Trace& trace, int32_t device, const std::vector<float>& values) {
  const GpuSamples& samples = trace.gpu_samples;
  CounterSource found = CounterSource::kGpm;
  for (Row row = 0; row < samples.size(); ++row) {
    if (samples.device[row] != device || !std::isfinite(values[row])) continue;
    found = samples.source[row];
    if (found == CounterSource::kPmSampling) break;
  }
  return found;
}

// Between two intervals that do not touch nothing is known.
void add_sampled(const Trace& trace, int32_t device, uint32_t group, Timeline& out) {
  const GpuSamples& samples = trace.gpu_samples;
  for (const Column<GpuSamples>& column : kSampled) {
    Counter counter{column.name, column.unit, group, {}, {}};
    const CounterSource source = source_of(trace, device, samples.*column.values);
    int64_t until = std::numeric_limits<int64_t>::min();
    for (Row row = 0; row < samples.size(); ++row) {
      if (samples.device[row] != device || samples.source[row] != source || samples.start_ns[row] < until) continue;
      if (!counter.values.empty() && samples.start_ns[row] > until + samples.dur_ns[row])
        add_value(counter, until, kUnknown);
      add_value(counter, samples.start_ns[row], (samples.*column.values)[row] * column.scale);
      until = samples.start_ns[row] + samples.dur_ns[row];
    }
    if (!counter.values.empty()) add_value(counter, until, kUnknown);
    keep(std::move(counter), out);
  }
}

// Tables of moments are in order, but those that two recorders wrote need not be.
template <class Table, class Take>
void for_each_in_time(const Table& table, Take&& take) {
  int64_t last = std::numeric_limits<int64_t>::min();
  for (Row row = 0; row < table.size(); ++row) {
    if (table.time_ns[row] < last) continue;
    if (take(row)) last = table.time_ns[row];
  }
}

void add_read(const Trace& trace, int32_t device, uint32_t group, Timeline& out) {
  const NvmlSamples& samples = trace.nvml_samples;
  for (const Column<NvmlSamples>& column : kRead) {
    Counter counter{column.name, column.unit, group, {}, {}};
    for_each_in_time(samples, [&](Row row) {
      if (samples.device[row] != device) return false;
      add_value(counter, samples.time_ns[row], (samples.*column.values)[row] * column.scale);
      return true;
    });
    keep(std::move(counter), out);
  }
}

void add_allocated(const Trace& trace, int32_t device, uint32_t group, Timeline& out) {
  const MemoryEvents& events = trace.memory_events;
  Counter counter{"Allocated by tensors", "MB", group, {}, {}};
  for_each_in_time(events, [&](Row row) {
    if (events.device[row] != device || events.allocated_bytes[row] < 0) return false;
    add_value(counter, events.time_ns[row], static_cast<float>(static_cast<double>(events.allocated_bytes[row]) / 1e6));
    return true;
  });
  keep(std::move(counter), out);
}

void add_named(const Trace& trace, const std::map<int32_t, uint32_t>& groups, Timeline& out) {
  const Counters& counters = trace.counters;
  std::map<std::pair<uint32_t, StringId>, Counter> found;
  for (Row row = 0; row < counters.size(); ++row) {
    const auto group = groups.find(counters.device[row]);
    const std::pair<uint32_t, StringId> key{group == groups.end() ? groups.begin()->second : group->second,
                                            counters.name[row]};
    if (found.size() >= kNamesMost && found.count(key) == 0) continue;
    Counter& counter =
        found.try_emplace(key, Counter{std::string(trace.text(key.second)), "", key.first, {}, {}}).first->second;
    if (counter.times_ns.empty() || counters.time_ns[row] >= counter.times_ns.back())
      add_value(counter, counters.time_ns[row], static_cast<float>(counters.value[row]));
  }
  for (auto& [key, counter] : found) keep(std::move(counter), out);
}

}  // namespace

void add_counters(const Trace& trace, const std::map<int32_t, uint32_t>& groups, Timeline& out) {
  if (groups.empty()) return;
  for (const auto& [device, group] : groups) {
    add_sampled(trace, device, group, out);
    add_read(trace, device, group, out);
    add_allocated(trace, device, group, out);
  }
  // Of a machine with one GPU it does not matter what a sample says of whose it is.
  if (groups.count(-1) == 0 && groups.size() == 1) {
    add_sampled(trace, -1, groups.begin()->second, out);
    add_read(trace, -1, groups.begin()->second, out);
  }
  add_named(trace, groups, out);
}

}  // namespace llmprof::timeline
