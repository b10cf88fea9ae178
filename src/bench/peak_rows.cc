#include "bench/peak_rows.h"

#include <fmt/format.h>

#include <set>

#include "bench/data_sheet.h"

namespace llmprof::bench {
namespace {

template <class Row>
void fill_common(const Peaks& peaks, const PeakRow& of, Row& row) {
  const CaseResult& result = of.result;
  row.disturbed = is_disturbed(peaks, of);
  row.backend = result.backend;
  row.status = result.status;
  if (result.timings.empty()) return;
  const Timing& timing = result.timings[0];
  row.n = timing.summary.n;
  row.iqr_frac = timing.summary.iqr_frac();
  row.sm_clock_mhz = timing.clock_mhz;
  row.power_w = timing.power_w;
  row.temperature_c = timing.temperature_c;
  row.throttle = throttle_text(timing);
  row.wait_ratio = timing.wait_ratio;
  row.checked = result.check.compared;
  row.prepare_s = result.phases.prepare_s;
  row.check_s = result.phases.check_s;
  row.choose_s = result.phases.choose_s;
  row.settle_s = result.phases.settle_s;
  row.timing_s = result.phases.timing_s;
}

void add_flops(const Peaks& peaks, const PeakRow& row, const std::optional<Gpu>& gpu, PeaksResult& result) {
  PeakFlopsRow out;
  fill_common(peaks, row, out);
  out.dtype = row.name;
  out.path = row.path;
  out.tflops = row.value;
  out.shape = row.shape;
  if (row.below_library) out.backend += ", not the unit's limit";
  if (const OptNumber sheet = sheet_tflops(gpu, row.name)) out.of_datasheet_frac = row.value / *sheet;
  out.of_clock_frac = of_sheet_at_clock(peaks.device, row);
  if (row.path == PeakPath::kLibrary) out.gap_to_first_frac = row.result.gap_to_first_frac;
  result.flops.push_back(std::move(out));
}

void add_bandwidth(const Peaks& peaks, const PeakRow& row, PeaksResult& result) {
  PeakBandwidthRow out;
  fill_common(peaks, row, out);
  out.kind = row.name;
  out.gbs = row.value;
  out.bytes = row.result.cost.bytes();
  out.of_datasheet_frac = of_sheet_at_clock(peaks.device, row);
  result.bandwidth.push_back(std::move(out));
}

void add_ridges(const Peaks& peaks, const std::optional<Gpu>& gpu, PeaksResult& result) {
  const MeasuredCeilings ceilings = ceilings_of(peaks);
  const std::optional<MeasuredRate> memory = memory_ceiling(ceilings);
  std::set<std::string> seen;
  for (const PeakRow& row : peaks.rows) {
    if (row.group != PeakGroup::kFlops || !seen.insert(row.name).second) continue;
    const std::map<std::string, MeasuredRate>::const_iterator peak = ceilings.library_tflops.find(row.name);
    if (const OptNumber ridge = measured_ridge(ceilings, row.name); ridge && memory)
      result.ridge.push_back({row.name, ridge, peak->second.value, memory->value, PeakSource::kMeasured});
    const OptNumber tflops = sheet_tflops(gpu, row.name), gbs = sheet_gbs(gpu);
    if (tflops && gbs) result.ridge.push_back({row.name, *tflops * 1e3 / *gbs, tflops, gbs, PeakSource::kDatasheet});
  }
}

}  // namespace

std::string throttle_text(const Timing& timing) {
  std::string out;
  for (const auto& [reason, share] : timing.throttle_fracs)
    if (share > 0) out += fmt::format("{}{} {:.0f} %", out.empty() ? "" : ", ", reason, share * 100);
  return out;
}

PeaksResult peaks_result(const Peaks& peaks, const std::string& tool_version) {
  PeaksResult out;
  out.tool_version = tool_version;
  out.device = measured_device(peaks.device);
  const std::optional<Gpu> gpu = data_sheet_of(peaks.device);
  for (const PeakRow& row : peaks.rows) {
    switch (row.group) {
      case PeakGroup::kFlops:
        add_flops(peaks, row, gpu, out);
        break;
      case PeakGroup::kMemory:
      case PeakGroup::kCache:
      case PeakGroup::kLink:
        add_bandwidth(peaks, row, out);
        break;
      case PeakGroup::kLatency:
        PeakLatencyRow& latency = out.latency.emplace_back();
        fill_common(peaks, row, latency);
        latency.kind = row.name;
        latency.us = row.value;
        break;
    }
  }
  add_ridges(peaks, gpu, out);
  for (const auto& [kind, cost] : peaks.recorder_ns)
    if (kind != kHostPaceCost)
      out.recorder.push_back({kind, cost.plain_ns / 1e3, cost.recorded_ns / 1e3,
                              (cost.recorded_ns - cost.plain_ns) / 1e3, cost.spread_ns / 1e3, cost.between_ns / 1e3,
                              cost.seen_ns / 1e3});
  out.interrupted = peaks.interrupted;
  out.diagnostics = peaks.remarks;
  return out;
}

MeasuredDevice measured_device(const device::DeviceIdentity& device) {
  const auto text = [](const std::string& value) { return value.empty() ? OptText() : OptText(value); };
  MeasuredDevice out;
  out.kind = device.kind == device::DeviceKind::kCpu ? Processor::kCpu : Processor::kCuda;
  out.key = device.key;
  out.name = device.name;
  out.uuid = text(device.uuid);
  out.driver = text(device.driver);
  if (out.kind == Processor::kCuda) out.compute_capability = fmt::format("{}.{}", device.cc_major, device.cc_minor);
  out.units = device.units;
  out.memory_bytes = device.memory_bytes;
  out.cache_bytes = device.cache_bytes;
  if (device.clock_max_mhz > 0) out.clock_max_mhz = device.clock_max_mhz;
  for (const LibraryVersion& library : device.libraries)
    out.libraries.push_back({library.name, library.version, library.path});
  return out;
}

}  // namespace llmprof::bench
