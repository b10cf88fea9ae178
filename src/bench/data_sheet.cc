#include "bench/data_sheet.h"

namespace llmprof::bench {
namespace {

std::optional<double> number(const Known& known) {
  return known && known->value > 0 ? std::optional<double>(known->value) : std::nullopt;
}

}  // namespace

std::optional<Gpu> data_sheet_of(const device::DeviceIdentity& device) {
  if (device.kind == device::DeviceKind::kCpu) return std::nullopt;
  Result<Gpu> gpu = detect_gpu({device.name, device.units, device.memory_bytes, device.cc_major, device.cc_minor});
  if (!gpu) return std::nullopt;
  return *std::move(gpu);
}

std::optional<double> sheet_tflops(const std::optional<Gpu>& gpu, std::string_view dtype) {
  const std::optional<PeakType> type = parse_peak_type(dtype);
  if (!gpu || !type) return std::nullopt;
  return number(peak_tflops(*gpu, *type));
}

std::optional<double> sheet_tflops_at(const std::optional<Gpu>& gpu, std::string_view dtype,
                                      const std::optional<double>& clock_mhz) {
  const std::optional<PeakType> type = parse_peak_type(dtype);
  if (!gpu || !type || !clock_mhz) return std::nullopt;
  return number(peak_tflops_at_clock(*gpu, *type, *clock_mhz));
}

std::optional<double> sheet_gbs(const std::optional<Gpu>& gpu) {
  if (!gpu) return std::nullopt;
  return number(memory_bandwidth_gbs(*gpu));
}

std::optional<double> of_sheet_at_clock(const device::DeviceIdentity& device, const PeakRow& row) {
  const std::optional<Gpu> gpu = data_sheet_of(device);
  std::optional<double> sheet;
  if (row.group == PeakGroup::kFlops && !row.result.timings.empty())
    sheet = sheet_tflops_at(gpu, row.name, row.result.timings[0].clock_mhz);
  if (row.group == PeakGroup::kMemory) sheet = sheet_gbs(gpu);
  if (!sheet) return std::nullopt;
  return row.value / *sheet;
}

}  // namespace llmprof::bench
