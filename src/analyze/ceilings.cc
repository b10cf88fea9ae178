#include "analyze/ceilings.h"

#include <fmt/format.h>

#include <map>

#include "base/text_table.h"
#include "hardware/hardware.h"

namespace llmprof {
namespace {

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

void fill_peaks(const Gpu& gpu, DeviceReport& device) {
  device.sku = gpu.sku;
  if (!device.sm_count && gpu.sm_count) device.sm_count = static_cast<int64_t>(gpu.sm_count->value);
  if (!device.compute_capability && !gpu.compute_capability.empty()) device.compute_capability = gpu.compute_capability;
  const auto add = [&](std::string name, const Sourced& value) {
    device.peaks.push_back({name, value.value, value.provenance, {}});
    if (value.doubtful)
      device.remarks.push_back(fmt::format("{} of {} is doubtful: {}", name, gpu.sku, value.provenance));
  };
  for (const PeakType type : kPeakTypes) {
    const Known peak = peak_tflops(gpu, type);
    if (!peak) continue;
    const bool whole = type == PeakType::kInt8 || type == PeakType::kInt4;
    add(fmt::format("{}_{}", name_of(type), whole ? "tops" : "tflops"), *peak);
    if (const DType dtype = dtype_of(type); dtype != DType::kUnknown)
      device.flops_per_s[static_cast<size_t>(dtype)] = peak->value * 1e12;
  }
  if (const Known bandwidth = memory_bandwidth_gbs(gpu); bandwidth) {
    add("dram_gbs", *bandwidth);
    device.bytes_per_s = bandwidth->value * 1e9;
  }
}

}  // namespace

Result<std::optional<DeviceReport>> describe_device(const Trace& trace, const AnalyzeOptions& options,
                                                    Diagnostics& diagnostics, std::vector<CannotTell>& cannot_tell) {
  DeviceReport device;
  const int32_t ordinal = busiest_device(trace);
  device.device = ordinal;
  DeviceFacts facts;
  for (Row d = 0; d < trace.devices.size(); ++d) {
    if (trace.devices.device[d] != ordinal) continue;
    const Devices& row = trace.devices;
    facts.name = trace.text(row.name[d]);
    facts.sm_count = std::max(0, row.sm_count[d]);
    facts.total_memory_bytes = std::max<int64_t>(0, row.memory_bytes[d]);
    facts.cc_major = std::max(0, row.compute_major[d]);
    facts.cc_minor = std::max(0, row.compute_minor[d]);
  }
  device.name = facts.name;
  if (facts.sm_count > 0) device.sm_count = facts.sm_count;
  if (facts.total_memory_bytes > 0) device.memory_bytes = static_cast<double>(facts.total_memory_bytes);
  if (facts.cc_major > 0) device.compute_capability = fmt::format("{}.{}", facts.cc_major, facts.cc_minor);
  if (!options.gpu.empty()) {
    LLMPROF_ASSIGN(const Gpu gpu, find_gpu(options.gpu));
    if (device.name.empty()) device.name = gpu.sku;
    // The recorded count stays: parts of one name differ, and kernels ran on the recorded one.
    fill_peaks(gpu, device);
    if (device.sm_count && gpu.sm_count && static_cast<double>(*device.sm_count) != gpu.sm_count->value)
      device.remarks.push_back(
          fmt::format("the recording says {} SMs, {} has {:.0f}", *device.sm_count, gpu.sku, gpu.sm_count->value));
    return std::optional<DeviceReport>(std::move(device));
  }
  if (facts.name.empty()) {
    diagnostics.add(DiagnosticId::kNoDeviceProperties);
    return std::optional<DeviceReport>{};
  }
  const Result<Gpu> gpu = detect_gpu(facts);
  if (gpu) {
    fill_peaks(*gpu, device);
  } else {
    cannot_tell.push_back({"What are the peaks of " + facts.name + "?", gpu.error().what,
                           gpu.error().advice.empty() ? "name a similar part with --gpu" : gpu.error().advice});
  }
  return std::optional<DeviceReport>(std::move(device));
}

}  // namespace llmprof
