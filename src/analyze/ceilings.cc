#include "analyze/ceilings.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <ctime>
#include <map>

#include "analyze/counters.h"
#include "analyze/processor.h"
#include "analyze/roof.h"
#include "analyze/without_program.h"
#include "base/statistics.h"
#include "base/text_table.h"

namespace llmprof {
namespace {

constexpr double kAboveCeiling = 1.05;     // of what was measured: further above than runs differ by
constexpr double kCeilingShareMin = 0.01;  // of the GPU time, in products of a type

// The device that did most of the work; the first described one if there is no GPU activity.
int32_t busiest_device(const Trace& trace) {
  std::vector<int64_t> by_stream(trace.streams.size());
  for (Row g = 0; g < trace.gpu_ops.size(); ++g) by_stream[trace.gpu_ops.stream[g]] += trace.gpu_ops.dur_ns[g];
  std::map<int32_t, int64_t> by_device;
  for (Row s = 0; s < trace.streams.size(); ++s) by_device[trace.streams.device[s]] += by_stream[s];
  int32_t best = trace.devices.empty() ? 0 : trace.devices.device.front();
  int64_t most = -1;
  for (const auto& [device, time] : by_device)
    if (time > most) best = device, most = time;
  if (trace.gpu_ops.empty() && !trace.windows.empty()) best = trace.windows.front().device;
  return best;
}

DType dtype_of(PeakType type) {
  switch (type) {
    case PeakType::kFp64:
      return DType::kFp64;
    case PeakType::kFp32:
      return DType::kFp32;
    case PeakType::kTf32:
      return DType::kTf32;
    case PeakType::kFp16:
      return DType::kFp16;
    case PeakType::kBf16:
      return DType::kBf16;
    case PeakType::kFp8:
      return DType::kFp8;
    case PeakType::kInt8:
      return DType::kInt8;
    case PeakType::kInt4:
      return DType::kInt4;
    case PeakType::kFp4:
      return DType::kFp4;
    case PeakType::kFp6:
      break;
  }
  return DType::kUnknown;
}

// The SM clock over the window of the device: by hardware counter, else as NVML read it.
std::optional<ClockRange> observed_clock(const Trace& trace, int32_t ordinal) {
  std::vector<double> clocks;
  for (const Window& window : trace.windows) {
    if (window.device != ordinal) continue;
    CounterSums sums;
    CounterSamples(trace, ordinal, {}).add(window.start_ns, window.end_ns, sums);
    for (const float hz : sums.clocks_hz) clocks.push_back(static_cast<double>(hz) / 1e6);
    const int64_t half = readings_uncertain_ns(trace) / 2;
    if (clocks.empty() && window.end_ns - window.start_ns > 2 * half)
      NvmlReadings(trace, ordinal).sm_clock_mhz.collect(window.start_ns + half, window.end_ns - half, clocks);
  }
  const std::optional<SampleSummary> summary = summarize_samples(std::move(clocks));
  if (!summary) return std::nullopt;
  return ClockRange{summary->min, summary->median, summary->max};
}

constexpr const char* kMemoryPeak = "dram_gbs";

bool is_whole(PeakType type) { return type == PeakType::kInt8 || type == PeakType::kInt4; }

// What it is a ceiling of. Without a type, of memory or of a link.
void describe_peak(std::optional<PeakType> type, std::string_view name, Peak& peak) {
  peak.of = type ? Peak::Of::kArithmetic : name == kMemoryPeak ? Peak::Of::kMemory : Peak::Of::kLink;
  if (!type) return;
  peak.type = name_of(*type);
  peak.integers = is_whole(*type);
}

void fill_peaks(const Gpu& gpu, DeviceReport& device) {
  device.sku = gpu.sku;
  if (!device.sm_count && gpu.sm_count) device.sm_count = static_cast<int64_t>(gpu.sm_count->value);
  if (!device.compute_capability && !gpu.compute_capability.empty()) device.compute_capability = gpu.compute_capability;
  const auto add = [&](std::string name, const Sourced& value, std::optional<PeakType> peak_type = {}) {
    Peak& peak = device.peaks.emplace_back(name, Peak()).second;
    peak.value = value.value;
    peak.provenance = value.provenance;
    describe_peak(peak_type, name, peak);
    if (value.doubtful)
      device.remarks.push_back(fmt::format("{} of {} is doubtful: {}", name, gpu.sku, value.provenance));
    if (!peak_type || !device.sm_clock_mhz) return;
    if (const Known scaled = peak_tflops_at_clock(gpu, *peak_type, device.sm_clock_mhz->median); scaled)
      device.peaks.back().second.at_clock = scaled->value;
  };
  for (const PeakType type : kPeakTypes) {
    const Known peak = peak_tflops(gpu, type);
    if (!peak) continue;
    add(fmt::format("{}_{}", name_of(type), is_whole(type) ? "tops" : "tflops"), *peak, type);
    if (const DType dtype = dtype_of(type); dtype != DType::kUnknown)
      device.flops_per_s[static_cast<size_t>(dtype)] = peak->value * 1e12;
  }
  if (gpu.boost_mhz) device.boost_mhz = gpu.boost_mhz->value;
  if (gpu.tdp_w) device.tdp_w = gpu.tdp_w->value;
  if (const Known clock = peak_clock_mhz(gpu, PeakType::kFp16); clock) {
    device.peak_clock_mhz = clock->value;
    if (device.sm_clock_mhz) device.clock_scale = device.sm_clock_mhz->median / clock->value;
  }
  if (const Known bandwidth = memory_bandwidth_gbs(gpu); bandwidth) {
    add(kMemoryPeak, *bandwidth);
    device.bytes_per_s = bandwidth->value * 1e9;
  }
  constexpr double kMib = 1024.0 * 1024.0;  // what data sheets of caches call MB
  if (gpu.l2_mb) device.cache_bytes = (gpu.l2_mb->value + (gpu.extra_cache_mb ? gpu.extra_cache_mb->value : 0)) * kMib;
  const auto add_link = [&](const char* name, const Known& one_way, LinkRate& link) {
    if (!one_way) return;
    add(name, *one_way);
    link.bytes_per_s = one_way->value * 1e9;
  };
  add_link("h2d_gbs", host_link_gbs(gpu), device.host_to_device);
  add_link("d2h_gbs", host_link_gbs(gpu), device.device_to_host);
  add_link("peer_gbs", peer_link_gbs(gpu), device.peer);
}

std::string day_of(int64_t unix_s) {
  const std::time_t time = static_cast<std::time_t>(unix_s);
  std::tm day{};
  if (gmtime_r(&time, &day) == nullptr) return "an unknown day";
  return fmt::format("{:04}-{:02}-{:02}", day.tm_year + 1900, day.tm_mon + 1, day.tm_mday);
}

// Whether ceilings of a device called `measured` are those of the part that kernels are held against.
bool is_part(const std::string& measured, const AnalyzeOptions& options, const std::string& recorded) {
  if (options.gpu.empty()) return recorded.empty() || measured == recorded;
  const Result<Gpu> gpu = find_gpu(options.gpu);
  return gpu && (measured == gpu->sku || may_call_itself(gpu->sku, measured));
}

// The ceilings of this device among those of the options; null if there are none that are certainly its.
const MeasuredCeilings* choose_measured(const AnalyzeOptions& options, const std::string& name, const std::string& key,
                                        DeviceReport& device, Diagnostics& diagnostics) {
  if (options.measured_given) {
    if (options.measured.empty()) return nullptr;
    const MeasuredCeilings& given = options.measured.front();
    if (!is_part(given.name, options, name)) {
      const std::string wanted = options.gpu.empty() ? name : options.gpu;
      diagnostics.add(DiagnosticId::kOtherCeilings,
                      fmt::format("Expected ceilings of {}, found those of {}: shares of them would mean nothing. "
                                  "Measure {} with `llmprof peaks{}`, or leave --ceilings out.",
                                  wanted, given.name, wanted, device.cpu ? " --device cpu" : ""));
      return nullptr;
    }
    if (name.empty())
      device.remarks.push_back(
          fmt::format("the recording does not name its device; the measured ceilings are those of {}", given.name));
    return &given;
  }
  if (!options.gpu.empty()) return nullptr;  // another part is asked about
  const MeasuredCeilings* same_name = nullptr;
  int named = 0;
  for (const MeasuredCeilings& one : options.measured) {
    if (!key.empty() && one.device_key == key) return &one;
    if (one.name != name || name.empty()) continue;
    same_name = &one;
    ++named;
  }
  // A recording that says which one it was, and it was none of these: measured on its neighbour.
  if (named != 1) return nullptr;
  device.remarks.push_back(key.empty() ? fmt::format("the recording does not say which {} it ran on: measured on {}",
                                                     name, same_name->device_key)
                                       : fmt::format("measured on another {}, {}", name, same_name->device_key));
  return same_name;
}

// What recording costs is the host's as much as the GPU's: of the device itself, else of an equal one in the machine of
// the recording, which lists its GPUs.
const MeasuredCeilings* costs_measured(const Trace& trace, const AnalyzeOptions& options, const std::string& name,
                                       const std::string& key, const MeasuredCeilings* chosen) {
  if (options.measured_given) return chosen;
  if (!options.gpu.empty()) return nullptr;
  const MeasuredCeilings* neighbour = nullptr;
  for (const MeasuredCeilings& one : options.measured) {
    if (one.recorder_ns.empty() || key.empty()) continue;
    if (one.device_key == key) return &one;
    if (one.name != name || one.uuid.empty()) continue;
    const bool here = std::any_of(trace.metadata.begin(), trace.metadata.end(), [&](const auto& fact) {
      return fact.first.starts_with("gpus.") && fact.first.ends_with(".uuid") && fact.second == one.uuid;
    });
    if (here && (neighbour == nullptr || neighbour->unix_s < one.unix_s)) neighbour = &one;
  }
  return neighbour;
}

Peak& peak_named(const std::string& name, DeviceReport& device) {
  for (auto& [known, peak] : device.peaks)
    if (known == name) return peak;
  return device.peaks.emplace_back(name, Peak()).second;
}

// Measured beside the data sheet's; in its place where there is none.
void fill_measured(const MeasuredCeilings& measured, DeviceReport& device) {
  device.measured_by = fmt::format("llmprof peaks on {}{}", day_of(measured.unix_s),
                                   measured.driver.empty() ? "" : ", driver " + measured.driver);
  if (std::optional<std::string> remark = disturbed_remark(measured)) {
    device.remarks.push_back(*std::move(remark));
    device.measured_disturbed = true;
  }
  const auto put = [&](const std::string& name, std::optional<PeakType> type, const MeasuredRate& rate, double unit,
                       OptDouble& sheet, OptDouble& roof) {
    roof = rate.value * unit;
    Peak& peak = peak_named(name, device);
    describe_peak(type, name, peak);
    peak.measured = rate.value;
    peak.how = fmt::format("{}{}", rate.how, rate.quick ? ", a quick run" : "");
    if (sheet) return;
    sheet = roof;
    peak.value = rate.value;
    peak.provenance = fmt::format("measured: {}", *device.measured_by);
  };
  for (const PeakType type : kPeakTypes) {
    const DType dtype = dtype_of(type);
    const auto found = measured.library_tflops.find(std::string(dtype_name(dtype)));
    if (dtype == DType::kUnknown || found == measured.library_tflops.end()) continue;
    const size_t index = static_cast<size_t>(dtype);
    put(fmt::format("{}_{}", name_of(type), type == PeakType::kInt8 ? "tops" : "tflops"), type, found->second, 1e12,
        device.flops_per_s[index], device.measured_flops_per_s[index]);
  }
  if (const std::optional<MeasuredRate> memory = memory_ceiling(measured))
    put(kMemoryPeak, {}, *memory, 1e9, device.bytes_per_s, device.measured_bytes_per_s);
  const auto put_link = [&](const char* kind, const char* name, LinkRate& link) {
    const std::map<std::string, MeasuredRate>::const_iterator found = measured.bandwidth_gbs.find(kind);
    if (found == measured.bandwidth_gbs.end()) return;
    OptDouble sheet = link.bytes_per_s;
    put(name, {}, found->second, 1e9, sheet, link.bytes_per_s);
    link.provenance = Provenance::kMeasured;
  };
  put_link("h2d", "h2d_gbs", device.host_to_device);
  put_link("d2h", "d2h_gbs", device.device_to_host);
  device.measured_bandwidths = measured.bandwidth_gbs;
  if (measured.cache_bytes) device.cache_bytes = static_cast<double>(*measured.cache_bytes);
}

// Data sheet peak, or measured rate, of products of the type over the bandwidth of memory.
void set_arithmetic(DType dtype, DeviceReport& device) {
  device.arithmetic = dtype_name(dtype);
  const OptDouble peak = device.roof_of(dtype), bandwidth = device.roof_bytes_per_s();
  if (peak && bandwidth) device.ridge = *peak / *bandwidth;
}

}  // namespace

OptDouble sheet_flops_per_s(const Gpu& gpu, DType dtype) {
  for (const PeakType type : kPeakTypes)
    if (dtype != DType::kUnknown && dtype_of(type) == dtype)
      if (const Known peak = peak_tflops(gpu, type); peak) return peak->value * 1e12;
  return std::nullopt;
}

Result<std::optional<DeviceReport>> describe_device(const Trace& trace, const AnalyzeOptions& options,
                                                    Diagnostics& diagnostics, std::vector<CannotTell>& cannot_tell) {
  DeviceReport device;
  const int32_t ordinal = busiest_device(trace);
  device.device = ordinal;
  DeviceFacts facts;
  std::string key;
  bool cpu = false;
  for (Row d = 0; d < trace.devices.size(); ++d) {
    if (trace.devices.device[d] != ordinal) continue;
    const Devices& row = trace.devices;
    facts.name = trace.text(row.name[d]);
    key = trace.text(row.uuid[d]);
    if (const std::string_view whole = trace.text(row.whole_uuid[d]); !whole.empty())
      device.part_of = std::string(whole);
    cpu = device.cpu = row.kind[d] == ProcessorKind::kCpu;
    facts.sm_count = std::max(0, row.sm_count[d]);
    facts.total_memory_bytes = std::max<int64_t>(0, row.memory_bytes[d]);
    facts.cc_major = std::max(0, row.compute_major[d]);
    facts.cc_minor = std::max(0, row.compute_minor[d]);
  }
  device.name = facts.name;
  // What a program does on a CPU says nothing of its kernels on a GPU: there are none.
  if (cpu && !options.gpu.empty())
    return fail(
        fmt::format("expected a recording of a GPU to compare with {}, found one of a program on a CPU", options.gpu),
        facts.name, "leave --gpu out; `llmprof model NAME --gpu` says what a GPU would give at best", ExitCode::kUsage);
  const MeasuredCeilings* const chosen = choose_measured(options, facts.name, key, device, diagnostics);
  if (const MeasuredCeilings* const costs = costs_measured(trace, options, facts.name, key, chosen))
    device.recorder_ns = costs->recorder_ns;
  const bool costs_alone = chosen != nullptr && !has_rates(*chosen) && !chosen->recorder_ns.empty();
  const MeasuredCeilings* const measured = costs_alone ? nullptr : chosen;
  device.sm_clock_mhz = observed_clock(trace, ordinal);
  if (facts.sm_count > 0) device.sm_count = facts.sm_count;
  if (facts.total_memory_bytes > 0) device.memory_bytes = static_cast<double>(facts.total_memory_bytes);
  if (facts.cc_major > 0) device.compute_capability = fmt::format("{}.{}", facts.cc_major, facts.cc_minor);
  if (!options.gpu.empty()) {
    LLMPROF_ASSIGN(const Gpu gpu, find_gpu(options.gpu));
    if (device.name.empty()) device.name = gpu.sku;
    device.other_part = device.name != gpu.sku && (cpu || !may_call_itself(gpu.sku, device.name));
    // Where the recording says itself which part it is, nothing was guessed.
    if (const std::vector<std::string> others = other_parts_called(options.gpu);
        !others.empty() && !may_call_itself(gpu.sku, facts.name))
      device.remarks.push_back(fmt::format("\"{}\" is taken to be {}; it may also mean {}", options.gpu, gpu.sku,
                                           fmt::join(others, " or ")));
    // The recorded count stays: parts of one name differ, and kernels ran on the recorded one.
    fill_peaks(gpu, device);
    if (device.sm_count && gpu.sm_count && static_cast<double>(*device.sm_count) != gpu.sm_count->value)
      device.remarks.push_back(
          fmt::format("the recording says {} SMs, {} has {:.0f}", *device.sm_count, gpu.sku, gpu.sm_count->value));
    if (measured != nullptr) fill_measured(*measured, device);
    return std::optional<DeviceReport>(std::move(device));
  }
  if (facts.name.empty()) {
    if (!no_gpu_work(trace) && !servers_only(trace)) diagnostics.add(DiagnosticId::kNoDeviceProperties);
    return std::optional<DeviceReport>{};
  }
  if (!cpu) {
    const Result<Gpu> gpu = detect_gpu(facts);
    if (gpu) {
      fill_peaks(*gpu, device);
      if (device.part_of)
        device.remarks.push_back(
            "a part of a divided GPU (MIG): its peaks are its share of the data sheet, and its clock follows what all "
            "parts do together");
    } else if (measured == nullptr) {
      cannot_tell.push_back({"What are the peaks of " + facts.name + "?", gpu.error().what,
                             gpu.error().advice.empty() ? "name a similar part with --gpu" : gpu.error().advice});
    }
  } else if (measured == nullptr) {
    cannot_tell.push_back({"What are the peaks of " + facts.name + "?",
                           "there are no data sheets of CPUs here, and it has no measured ceilings yet",
                           "llmprof peaks --device cpu"});
  }
  if (measured != nullptr) fill_measured(*measured, device);
  return std::optional<DeviceReport>(std::move(device));
}

void name_arithmetic(const Trace& trace, const Groups& groups, DeviceReport& device) {
  // A type that has half of the products' time, those of unknown type included, is the program's.
  constexpr double kArithmeticShareMin = 0.5;
  std::array<double, static_cast<size_t>(DType::kCount)> ns{};
  double all_ns = 0;
  for (uint32_t k = 0; k < groups.kernels.size(); ++k) {
    const KernelKey& key = groups.kernel_keys.key(k);
    const bool product = key.work != kNoRow && trace.works.kind[key.work] == WorkKind::kGemm;
    if ((!product && key.category != Category::kGemm) || groups.stages[key.stage].device != device.device) continue;
    const double total_ns = static_cast<double>(groups.kernels[k].total_ns);
    all_ns += total_ns;
    ns[static_cast<size_t>(product ? trace.works.dtype[key.work] : DType::kUnknown)] += total_ns;
  }
  for (size_t d = 0; d < ns.size(); ++d)
    if (static_cast<DType>(d) != DType::kUnknown && ns[d] > 0 && ns[d] >= kArithmeticShareMin * all_ns)
      set_arithmetic(static_cast<DType>(d), device);
}

void take_arithmetic_of_stages(const std::vector<StageTiming>& stages, DeviceReport& device) {
  if (device.arithmetic) return;
  const StageTiming* most = nullptr;
  for (const StageTiming& stage : stages)
    if (stage.dtype && stage.flops_provenance == Provenance::kFormula && stage.device == device.device &&
        (most == nullptr || stage.gpu_busy_ms.ns > most->gpu_busy_ms.ns))
      most = &stage;
  if (most == nullptr) return;
  for (size_t d = 0; d < static_cast<size_t>(DType::kCount); ++d)
    if (dtype_name(static_cast<DType>(d)) == *most->dtype) set_arithmetic(static_cast<DType>(d), device);
}

namespace {

// Kernels, by stage and shape, that took less time than the ceilings allow: their share of the roof is over 100 %.
void name_rows_above(const Context& context, const DeviceReport& device, Diagnostics& diagnostics) {
  if (!device.measured_by || device.other_part) return;
  const double above = device.measured_disturbed ? 1 : kAboveCeiling;
  std::vector<std::pair<double, uint32_t>> rows;
  for (uint32_t k = 0; k < context.groups.kernels.size(); ++k) {
    const double total_ns = static_cast<double>(context.groups.kernels[k].total_ns);
    const bool here = context.groups.stages[context.groups.kernel_keys.key(k).stage].device == device.device;
    const OptDouble roof_ns = here && total_ns > 0 ? kernel_roof(context, k).point.roof_ns : std::nullopt;
    if (roof_ns && std::llround(*roof_ns / total_ns * 100) > 100 && *roof_ns > above * total_ns)
      rows.emplace_back(-*roof_ns / total_ns, k);
  }
  std::sort(rows.begin(), rows.end());
  for (const auto& [share, k] : rows) {
    const KernelKey& key = context.groups.kernel_keys.key(k);
    const std::string shape =
        key.work == kNoRow ? "" : " " + std::string(context.trace.text(context.trace.works.shape[key.work]));
    diagnostics.add(DiagnosticId::kAboveCeiling,
                    fmt::format("{}{} in {}: {:.0f} % of its roof", context.trace.text(key.name), shape,
                                stage_name(context.trace, context.groups, key.stage), -share * 100));
  }
}

}  // namespace

void check_ceilings(const Context& context, DeviceReport& device, Diagnostics& diagnostics) {
  // All products of a type together: a single short one may seem faster by the grain of its timestamps.
  std::array<double, static_cast<size_t>(DType::kCount)> flops{}, ns{};
  const Works& works = context.trace.works;
  for (uint32_t k = 0; k < context.groups.kernels.size(); ++k) {
    const KernelKey& key = context.groups.kernel_keys.key(k);
    const KernelSums& sums = context.groups.kernels[k];
    if (key.work == kNoRow || key.category != Category::kGemm ||
        context.groups.stages[key.stage].device != device.device || kernel_bound(context, k) != Bound::kCompute)
      continue;
    const auto dtype = static_cast<size_t>(works.dtype[key.work]);
    flops[dtype] += works.flops[key.work] * static_cast<double>(sums.calls);
    ns[dtype] += static_cast<double>(sums.total_ns);
  }
  for (size_t dtype = 0; dtype < flops.size(); ++dtype) {
    const OptDouble ceiling = device.measured_flops_per_s[dtype];
    if (!ceiling || ns[dtype] < kCeilingShareMin * static_cast<double>(context.groups.gpu_ns)) continue;
    const double reached = flops[dtype] / ns[dtype] * 1e9;
    if (reached <= kAboveCeiling * *ceiling) continue;
    const std::string name(dtype_name(static_cast<DType>(dtype)));
    diagnostics.add(DiagnosticId::kAboveCeiling,
                    fmt::format("{}: {:.3g} TFLOP/s, measured ceiling {:.3g}{}", name, reached / 1e12, *ceiling / 1e12,
                                device.cpu ? ", which is not used" : ""));
    if (!device.cpu) continue;
    // There is no data sheet to fall back on, and a share of what is no ceiling says nothing.
    device.measured_flops_per_s[dtype].reset();
    device.flops_per_s[dtype].reset();
    std::erase_if(device.peaks, [&](const auto& peak) { return peak.second.type == name; });
  }
  name_rows_above(context, device, diagnostics);
}

}  // namespace llmprof
