#include "analyze/telemetry.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "analyze/clock_offset.h"
#include "base/json_document.h"
#include "base/statistics.h"
#include "derive/recorded_spans.h"
#include "trace/throttle_known.h"

namespace llmprof {
namespace {

constexpr size_t kSeriesPoints = 120;
constexpr size_t kEnergyReadingsMin = 5;
// Readings that are placed to this part of the window give its energy: power at its edges may be any.
constexpr int64_t kEnergyPlacedWithin = 100;
// Shapes that say more than was executed at most: beyond the part of a stage that samples may leave out.
constexpr double kExecutedMin = 0.95;

int64_t median_step_ns(const Steps& steps, const StageGroup& group) {
  std::vector<double> lengths;
  lengths.reserve(group.steps.size());
  for (const Row s : group.steps) lengths.push_back(static_cast<double>(steps.end_ns[s] - steps.start_ns[s]));
  return lengths.empty() ? 0 : static_cast<int64_t>(median_of(std::move(lengths)));
}

OptDouble median(std::vector<double> values) { return values.empty() ? OptDouble() : median_of(std::move(values)); }

std::vector<double> in_mhz(const std::vector<float>& hz) {
  std::vector<double> out;
  out.reserve(hz.size());
  for (const float value : hz) out.push_back(static_cast<double>(value) / 1e6);
  return out;
}

void fill_power(const Steps& steps, const DeviceReadings& readings, const StageGroup& group, StageTiming& row) {
  const NvmlReadings& nvml = readings.nvml;
  double energy_j = 0, seconds = 0;
  for (const Row s : group.steps) {
    if (steps.end_ns[s] - steps.start_ns[s] < readings.uncertain_ns) return;
    if (!nvml.power_w.covers(steps.start_ns[s], steps.end_ns[s])) return;
    energy_j += nvml.power_w.integral(steps.start_ns[s], steps.end_ns[s]);
    seconds += static_cast<double>(steps.end_ns[s] - steps.start_ns[s]) / 1e9;
  }
  if (group.steps.empty() || group.wall_ns < kEnergyStageNsMin) return;
  row.energy_j = energy_j;
  row.power_w = energy_j / seconds;
  const OptInt tokens = row.output_tokens ? row.output_tokens : row.tokens;
  if (tokens && *tokens > 0) row.energy_per_token_j = energy_j / static_cast<double>(*tokens);
}

// ---- throttling ----------------------------------------------------------------------------------------------------

struct ThrottleKind {
  ThrottleReason reason;
  const std::vector<int64_t>* cumulative_ns;  // null: the driver keeps no counter
  uint64_t bit;
};

std::vector<ThrottleRecord> throttling(const Trace& trace, const NvmlReadings& nvml, const Window& window) {
  const NvmlSamples& table = trace.nvml_samples;
  const std::array<ThrottleKind, 6> kinds = {{{ThrottleReason::kPowerCap, &table.throttle_power_ns, 0x4},
                                              {ThrottleReason::kThermalSoftware, &table.throttle_thermal_sw_ns, 0x20},
                                              {ThrottleReason::kThermalHardware, &table.throttle_thermal_hw_ns, 0x40},
                                              {ThrottleReason::kPowerBrake, &table.throttle_brake_ns, 0x80},
                                              {ThrottleReason::kSyncBoost, &table.throttle_sync_boost_ns, 0x10},
                                              {ThrottleReason::kHardware, nullptr, 0x8}}};
  std::vector<Row> inside;
  for (const Row row : nvml.rows) {
    if (table.time_ns[row] >= window.start_ns && table.time_ns[row] < window.end_ns &&
        table.throttle_reasons[row] != kThrottleReasonsUnknown)
      inside.push_back(row);
  }
  const uint64_t known = throttle_reasons_known(trace);
  std::vector<ThrottleRecord> out;
  for (const ThrottleKind& kind : kinds) {
    Readings counter;
    for (const Row row : nvml.rows) {
      if (kind.cumulative_ns != nullptr && (*kind.cumulative_ns)[row] >= 0)
        counter.add(table.time_ns[row], static_cast<double>((*kind.cumulative_ns)[row]));
    }
    if (counter.covers(window.start_ns, window.end_ns)) {
      const double held = counter.at(window.end_ns) - counter.at(window.start_ns);
      const double frac = held / static_cast<double>(window.end_ns - window.start_ns);
      out.push_back({kind.reason, std::clamp(frac, 0.0, 1.0), "counter"});
    } else if (!inside.empty() && (known & kind.bit) != 0) {
      const auto shown = std::count_if(inside.begin(), inside.end(),
                                       [&](Row row) { return (table.throttle_reasons[row] & kind.bit) != 0; });
      out.push_back({kind.reason, static_cast<double>(shown) / static_cast<double>(inside.size()), "samples"});
    }
  }
  return out;
}

// ---- the window as a whole -----------------------------------------------------------------------------------------

std::optional<Summary> summary_in(const Readings& readings, const Window& window) {
  std::vector<double> values;
  readings.collect(window.start_ns, window.end_ns, values);
  return summarize(std::move(values));
}

OptDouble mean_in(const Readings& readings, const Window& window) {
  const std::optional<Summary> summary = summary_in(readings, window);
  return summary ? OptDouble(summary->mean) : std::nullopt;
}

void fill_series(const DeviceReadings& readings, const Window& window, TelemetryReport& out) {
  const int64_t length = window.end_ns - window.start_ns;
  const NvmlReadings none(Trace(), -1);
  const bool placed = readings.uncertain_ns <= length / static_cast<int64_t>(kSeriesPoints);
  const NvmlReadings& nvml = placed ? readings.nvml : none;
  for (size_t p = 0; p < kSeriesPoints; ++p) {
    const auto edge = [&](size_t i) {
      return window.start_ns + static_cast<int64_t>(static_cast<double>(length) * static_cast<double>(i) /
                                                    static_cast<double>(kSeriesPoints));
    };
    const Window bucket{window.device, edge(p), edge(p + 1)};
    if (bucket.end_ns <= bucket.start_ns) continue;
    TelemetryPoint point;
    point.time_ms = static_cast<double>((bucket.start_ns + bucket.end_ns) / 2 - window.start_ns) / 1e6;
    point.power_w = mean_in(nvml.power_w, bucket);
    point.sm_clock_mhz = mean_in(nvml.sm_clock_mhz, bucket);
    point.temperature_c = mean_in(nvml.temperature_c, bucket);
    point.memory_used_bytes = mean_in(nvml.memory_used_bytes, bucket);
    CounterSums sums;
    readings.counters.add(bucket.start_ns, bucket.end_ns, sums);
    point.gr_active_frac = sums.gr_active.mean();
    point.sm_active_frac = sums.sm_active.mean();
    point.tensor_active_frac = sums.tensor_active.mean();
    point.dram_frac = sums.dram.mean();
    if (const OptDouble clock = median(in_mhz(sums.clocks_hz))) point.sm_clock_mhz = clock;
    const bool any = point.power_w || point.sm_clock_mhz || point.temperature_c || point.memory_used_bytes ||
                     point.gr_active_frac || point.sm_active_frac || point.dram_frac;
    if (any) out.series.push_back(point);
  }
}

void fill_counters(const Trace& trace, const DeviceReadings& readings, const Window& window, TelemetryReport& out) {
  if (readings.counters.empty()) return;
  CounterSums sums;
  readings.counters.add(window.start_ns, window.end_ns, sums);
  if (sums.samples == 0) return;
  out.counter_samples = sums.samples;
  out.counter_source = readings.counters.source();
  out.counter_interval_us = static_cast<double>(readings.counters.interval_ns()) / 1e3;
  out.counter_coverage_frac = std::min(1.0, sums.covered_ns / static_cast<double>(window.end_ns - window.start_ns));
  if (const std::optional<ClockOffset> offset =
          counter_clock_offset(trace, static_cast<int32_t>(out.device), readings.counters))
    out.counter_clock_offset_us = offset->offset_us;
  if (!sums.clocks_hz.empty()) {
    out.sm_clock_mhz = summarize(in_mhz(sums.clocks_hz));
    out.sm_clock_source = readings.counters.source();
  }
  if (const OptDouble rate = sums.pcie_read.mean()) out.pcie_rx_bytes_per_s = rate;
  if (const OptDouble rate = sums.pcie_write.mean()) out.pcie_tx_bytes_per_s = rate;
  out.gr_active_frac = sums.gr_active.mean();
  out.sm_active_frac = sums.sm_active.mean();
  out.tensor_active_frac = sums.tensor_active.mean();
  out.dram_frac = sums.dram.mean();
  out.nvlink_rx_bytes_per_s = sums.nvlink_rx.mean();
  out.nvlink_tx_bytes_per_s = sums.nvlink_tx.mean();
}

void fill_nvml(const Context& context, const DeviceReadings& readings, const Window& window, TelemetryReport& out) {
  const NvmlReadings& nvml = readings.nvml;
  for (const Row row : nvml.rows) {
    const int64_t time = context.trace.nvml_samples.time_ns[row];
    if (time >= window.start_ns && time < window.end_ns) ++out.nvml_samples;
  }
  out.power_w = summary_in(nvml.power_w, window);
  out.sm_clock_mhz = summary_in(nvml.sm_clock_mhz, window);
  if (out.sm_clock_mhz) out.sm_clock_source = "nvml";
  out.memory_clock_mhz = summary_in(nvml.memory_clock_mhz, window);
  out.temperature_c = summary_in(nvml.temperature_c, window);
  out.memory_temperature_c = summary_in(nvml.memory_temperature_c, window);
  out.gpu_util_frac = mean_in(nvml.gpu_util_frac, window);
  if (const std::optional<Summary> used = summary_in(nvml.memory_used_bytes, window))
    out.memory_used_peak_bytes = used->max;
  out.pcie_rx_bytes_per_s = mean_in(nvml.pcie_rx, window);
  out.pcie_tx_bytes_per_s = mean_in(nvml.pcie_tx, window);
  out.throttle = throttling(context.trace, nvml, window);
}

// Whether tokens of some steps are not counted, because nothing is known of the steps in unrecorded time.
bool misses_tokens(const Groups& groups, int32_t device) {
  constexpr double kMissingMost = 0.02;
  return std::any_of(groups.stages.begin(), groups.stages.end(), [&](const StageGroup& group) {
    return group.device == device && group.steps_unknown && group.scale > 1 + kMissingMost;
  });
}

// By the counter, which is read seldom, so that the edges of the window lie far from a reading: there by power.
OptDouble counted_energy(const NvmlReadings& nvml, const Window& window) {
  std::vector<double> counted, powers;
  const std::vector<int64_t> times = nvml.energy_j.collect(window.start_ns, window.end_ns, counted);
  nvml.power_w.collect(window.start_ns, window.end_ns, powers);
  if (counted.size() < 2 || !nvml.energy_j.covers(window.start_ns, window.end_ns)) return std::nullopt;
  const bool has_power = nvml.power_w.covers(window.start_ns, window.end_ns);
  if (has_power && powers.size() >= kEnergyReadingsMin && counted.size() < powers.size() / 2)
    return counted.back() - counted.front() + nvml.power_w.integral(window.start_ns, times.front()) +
           nvml.power_w.integral(times.back(), window.end_ns);
  if (counted.size() < kEnergyReadingsMin) return std::nullopt;
  return nvml.energy_j.at(window.end_ns) - nvml.energy_j.at(window.start_ns);
}

void fill_energy(const Context& context, const DeviceReadings& readings, const Window& window, TelemetryReport& out) {
  if (window.end_ns - window.start_ns < kEnergyStageNsMin) return;
  if (readings.uncertain_ns > (window.end_ns - window.start_ns) / kEnergyPlacedWithin) return;
  const NvmlReadings& nvml = readings.nvml;
  if (const OptDouble counted = counted_energy(nvml, window)) {
    out.energy_j = counted;
  } else if (out.power_w && out.power_w->n >= static_cast<int64_t>(kEnergyReadingsMin) &&
             nvml.power_w.covers(window.start_ns, window.end_ns) &&
             !nvml.power_w.broken(window.start_ns, window.end_ns)) {
    out.energy_j = nvml.power_w.integral(window.start_ns, window.end_ns);
  }
  // The energy is of the whole window; the tokens must be as well.
  if (misses_tokens(context.groups, window.device)) return;
  const Steps& steps = context.trace.steps;
  int64_t tokens = 0;
  for (Row s = 0; s < steps.size(); ++s) {
    if (steps.device[s] != window.device || steps.kind[s] == StageKind::kVision) continue;
    if (steps.output_tokens[s] < 0) return;
    tokens += steps.output_tokens[s];
  }
  if (out.energy_j && tokens > 0) out.energy_per_token_j = *out.energy_j / static_cast<double>(tokens);
}

void explain_missing(const Context& context, const TelemetryReport& telemetry, const Window& window,
                     std::vector<CannotTell>& cannot_tell) {
  if (telemetry.counter_samples == 0)
    cannot_tell.push_back({"What did the hardware counters say (tensor pipe, SM, DRAM and L2 activity)?",
                           "the recording holds no counter samples",
                           "`llmprof doctor` says whether counters may be read here; the diagnostics say why not"});
  if (telemetry.nvml_samples == 0)
    cannot_tell.push_back({"Which power and temperature did the GPU run at, and was it throttled?",
                           "the recording holds no readings of NVML",
                           "`llmprof doctor` says whether NVML works here; longer runs get more readings"});
  const int64_t window_ns = window.end_ns - window.start_ns;
  const bool part = is_part_of_gpu(context.trace, window.device);
  if (telemetry.nvml_samples > 0 && part)
    cannot_tell.push_back({"How much power did it take, and how much memory was in use?",
                           "it is a part of a divided GPU (MIG), and the driver reads power, energy and memory of all "
                           "parts together",
                           "record on a whole GPU; clocks, temperature and throttling are the GPU's and hold for it"});
  if (telemetry.nvml_samples > 0 && !part && !telemetry.energy_j)
    cannot_tell.push_back({"How much energy did the run take?",
                           window_ns < kEnergyStageNsMin
                               ? "it is shorter than 2 s, and power sensors see 25 of every 100 ms"
                               : "power was not read often enough or not over the whole window",
                           "record 2 s or more"});
  if (telemetry.energy_j && misses_tokens(context.groups, window.device))
    cannot_tell.push_back({"How much energy did a token take?",
                           "the steps in time that was recorded without kernels, and their tokens, are not known",
                           "record over the whole run (--unrecorded-windows off)"});
  bool short_stage = false;
  for (const StageGroup& group : context.groups.stages)
    short_stage |= !group.unattributed && group.device == window.device && group.wall_ns < kEnergyStageNsMin;
  if (telemetry.energy_j && short_stage)
    cannot_tell.push_back({"How much energy did the short stages take?",
                           "a stage of less than 2 s altogether is below what the power sensor can tell apart",
                           "record more steps of it"});
}

// Total over a stage of a rate per second. Uncovered time is taken to be like the rest; that is little, or no total is
// given.
OptDouble total_of(const TimeMean& rate, const StageGroup& group) {
  const double wall_ns = static_cast<double>(group.wall_ns);
  const OptDouble mean = rate.mean();
  if (!mean || rate.weight_ns < kCounterCoverageMin * wall_ns) return std::nullopt;
  return *mean * wall_ns / 1e9;
}

// Logs of nvidia-smi beside the recording that are not placed, and what a placed one is too coarse for.
void explain_placing(const Context& context, std::vector<CannotTell>& cannot_tell) {
  const int64_t uncertain_ns = readings_uncertain_ns(context.trace);
  const Trace& trace = context.trace;
  const JoinedFiles& files = trace.files_joined;
  for (Row row = 0; row < files.size(); ++row)
    if (files.matched[row] == 0 && files.uncertain_ns[row] < 0)
      cannot_tell.push_back({fmt::format("What did {} read during the recording?", trace.text(files.file[row])),
                             std::string(trace.text(files.not_matched[row])),
                             "log around the recording, on its machine"});
  const bool too_short =
      std::any_of(context.groups.stages.begin(), context.groups.stages.end(), [&](const StageGroup& group) {
        return !group.steps.empty() && median_step_ns(context.trace.steps, group) < uncertain_ns;
      });
  if (too_short)
    cannot_tell.push_back({"Which clock and power did the GPU run at in the short stages?",
                           fmt::format("readings are placed to {:g} ms only, which is longer than a step of them",
                                       static_cast<double>(uncertain_ns) / 1e6),
                           "log milliseconds, or record with `llmprof run`"});
}

OptInt sm_count(const Context& context, int64_t device) {
  const Devices& table = context.trace.devices;
  for (Row row = 0; row < table.size(); ++row)
    if (table.device[row] == device && table.sm_count[row] > 0) return table.sm_count[row];
  return context.device != nullptr && context.device->device == device ? context.device->sm_count : std::nullopt;
}

void fill_arithmetic(const Context& context, const CounterSums& sums, const StageGroup& group, StageTiming& row) {
  const OptDouble cycles = total_of(sums.tensor_cycles_per_s, group);
  const OptInt sms = sm_count(context, group.device);
  if (cycles && sms) row.tensor_cycles = *cycles * static_cast<double>(*sms);
  row.fma_instructions = total_of(sums.fma_per_s, group);
  row.fma_flops_measured = total_of(sums.fma_flops_per_s, group);
}

}  // namespace

void fill_measured_flops(OptDouble tensor_flops_per_cycle, StageTiming& row) {
  if (!row.tensor_cycles) return;
  if (*row.tensor_cycles == 0) {
    row.tensor_flops_measured = 0;
  } else if (tensor_flops_per_cycle) {
    row.tensor_flops_measured = *row.tensor_cycles * *tensor_flops_per_cycle;
  }
  if (row.tensor_flops_measured && row.fma_flops_measured)
    row.flops_measured = *row.tensor_flops_measured + *row.fma_flops_measured;
}

void explain_measured_flops(const Report& report, std::vector<CannotTell>& cannot_tell) {
  bool told = false;
  for (const StageTiming& row : report.stages) {
    if (row.count == 0 || !row.counter_samples) continue;
    if (row.flops && row.flops_measured && *row.flops_measured < kExecutedMin * *row.flops) {
      cannot_tell.push_back(
          {fmt::format("Does {} do the {:.4g} FLOP of its shapes or formula?", row.name, *row.flops),
           fmt::format("by hardware counter it executed {:.4g} FLOP at most", *row.flops_measured),
           "products with 2:4 sparsity and kernels that skip part of their work do less than their shapes say; for a "
           "formula check --model, --batch and --context"});
    }
    if (row.flops_measured || told) continue;
    told = true;  // one reason is enough: it is that of the mode, the chip or the GPU
    const char* why = "the tensor pipe or the SM clock was not sampled, or over less than 90 % of its time";
    const char* how = "`llmprof doctor` says whether counters may be read here";
    if (row.tensor_cycles && !row.fma_instructions) {
      why = "the instructions of the FMA pipes were not counted, or over less than 90 % of its time";
      how = "record with `llmprof run --mode deep`";
    } else if (row.tensor_cycles) {
      why = "the element types of its arithmetic, or the rate of the GPU's tensor pipe, are not known";
      how = "record shapes (mode default or deep), or pass --model";
    }
    cannot_tell.push_back({fmt::format("How many FLOPs did the hardware execute at most in {}?", row.name), why, how});
  }
}

DeviceReadings::DeviceReadings(const Trace& trace, int32_t device, const DeviceReport* report)
    : counters(trace, device, report != nullptr && report->device == device ? report->bytes_per_s : std::nullopt),
      nvml(trace, device),
      uncertain_ns(readings_uncertain_ns(trace)) {}

void fill_stage_readings(const Context& context, const DeviceReadings& readings, const StageGroup& group,
                         StageTiming& row) {
  const Steps& steps = context.trace.steps;
  const bool too_coarse = readings.counters.gpm() && median_step_ns(steps, group) < readings.counters.interval_ns();
  CounterSums sums;
  if (!readings.counters.empty() && !too_coarse)
    for (const Row s : group.steps) readings.counters.add(steps.start_ns[s], steps.end_ns[s], sums);
  if (sums.samples > 0 && group.wall_ns > 0) {
    row.counter_source = readings.counters.source();
    row.counter_samples = sums.samples;
    row.counter_coverage_frac = std::min(1.0, sums.covered_ns / static_cast<double>(group.wall_ns));
    row.gr_active_frac = sums.gr_active.mean();
    row.sm_active_frac = sums.sm_active.mean();
    row.tensor_active_frac = sums.tensor_active.mean();
    row.dram_frac = sums.dram.mean();
    row.l2_hit_frac = sums.l2_hit.mean();
    row.dram_bytes_measured = total_of(sums.dram_bytes_per_s, group);
    row.sm_clock_mhz = median(in_mhz(sums.clocks_hz));
    fill_arithmetic(context, sums, group, row);
  }
  if (!row.sm_clock_mhz) {
    std::vector<double> clocks;
    const int64_t half = readings.uncertain_ns / 2;  // only what surely lies in the step
    for (const Row s : group.steps)
      if (steps.end_ns[s] - steps.start_ns[s] > 2 * half)
        readings.nvml.sm_clock_mhz.collect(steps.start_ns[s] + half, steps.end_ns[s] - half, clocks);
    row.sm_clock_mhz = median(std::move(clocks));
  }
  fill_power(steps, readings, group, row);
}

OptDouble power_limit_w(const Trace& trace, int32_t device) {
  const Devices& devices = trace.devices;
  const auto at = std::find(devices.device.begin(), devices.device.end(), device);
  if (at == devices.device.end()) return std::nullopt;
  const Row row = static_cast<Row>(at - devices.device.begin());
  if (devices.whole_uuid[row] != StringId::kEmpty) return std::nullopt;
  const std::string_view uuid = trace.text(devices.uuid[row]), name = trace.text(devices.name[row]);
  OptDouble only;
  for (const auto& [key, text] : trace.metadata) {
    if (!key.starts_with("gpu.")) continue;
    const Result<JsonDocument> gpu = JsonDocument::parse(text);
    if (!gpu) continue;
    const std::optional<double> limit = gpu->root()["power_limit_w"].number();
    const bool own = uuid.empty() ? gpu->root()["name"].text() == name : gpu->root()["uuid"].text() == uuid;
    if (!limit || !own) continue;
    if (only && *only != *limit) return std::nullopt;
    only = limit;
  }
  return only;
}

void analyze_telemetry(const Context& context, Report& report, std::vector<CannotTell>& cannot_tell) {
  const Trace& trace = context.trace;
  explain_placing(context, cannot_tell);
  if ((trace.gpu_samples.empty() && trace.nvml_samples.empty()) || trace.windows.empty()) {
    if (context.device != nullptr && context.device->cpu) {
      cannot_tell.push_back({"Which clock and power did the CPU run at, and how much memory traffic was there?",
                             "runs on a CPU are recorded without clock, power or counters",
                             "`llmprof bench --device cpu` shows the clock of each case; perf stat reads counters"});
      return;
    }
    const bool live = is_live_recording(trace);  // then the samplers found nothing to read
    cannot_tell.push_back({"What did the hardware counters say (tensor pipe, SM, DRAM and L2 activity)?",
                           "the recording holds no counters",
                           live ? "`llmprof doctor` says whether counters may be read here, and what they need; or "
                                  "profile a few kernels of interest with Nsight Compute (ncu --set full)"
                                : "record with `llmprof run -- COMMAND`, which samples them beside the program; or "
                                  "profile a few kernels of interest with Nsight Compute (ncu --set full)"});
    cannot_tell.push_back({"Which clock, power and temperature did the GPU run at, and was it throttled?",
                           "the recording holds no clock, power or temperature samples; MFU is given at the data "
                           "sheet's clock only",
                           live ? "`llmprof doctor` says whether they can be read here, and what that needs"
                                : "record with `llmprof run -- COMMAND`"});
    return;
  }
  const int32_t device =
      context.device != nullptr ? static_cast<int32_t>(context.device->device) : trace.windows.front().device;
  const std::vector<Window>::const_iterator at = std::find_if(
      trace.windows.begin(), trace.windows.end(), [&](const Window& candidate) { return candidate.device == device; });
  const Window window = at != trace.windows.end() ? *at : trace.windows.front();
  const DeviceReadings readings(trace, window.device, context.device);
  TelemetryReport telemetry;
  telemetry.device = window.device;
  telemetry.window_ms.ns = window.end_ns - window.start_ns;
  telemetry.power_limit_w = power_limit_w(trace, window.device);
  if (telemetry.window_ms.ns > readings.uncertain_ns) {
    const int64_t half = readings.uncertain_ns / 2;  // only what surely lies in the window
    fill_nvml(context, readings, {window.device, window.start_ns + half, window.end_ns - half}, telemetry);
  }
  fill_counters(context.trace, readings, window, telemetry);
  fill_energy(context, readings, window, telemetry);
  fill_series(readings, window, telemetry);
  explain_missing(context, telemetry, window, cannot_tell);
  report.telemetry = std::move(telemetry);
}

}  // namespace llmprof
