// What the data sheet says of a device, where llmprof has it (hardware/hardware.h): GPUs only.
#pragma once

#include <optional>
#include <string_view>

#include "bench/peaks.h"
#include "device/device.h"
#include "hardware/hardware.h"

namespace llmprof::bench {

// The GPU of that identity, found once; empty for CPUs and for GPUs that the table does not know.
std::optional<Gpu> data_sheet_of(const device::DeviceIdentity& device);

std::optional<double> sheet_tflops(const std::optional<Gpu>& gpu, std::string_view dtype);
// At the clock; empty where it is unknown.
std::optional<double> sheet_tflops_at(const std::optional<Gpu>& gpu, std::string_view dtype,
                                      const std::optional<double>& clock_mhz);
std::optional<double> sheet_gbs(const std::optional<Gpu>& gpu);

// Share of the data sheet: of the peak at the clock that was seen (arithmetic), of the bandwidth (memory; the memory's
// clock is fixed). Empty for caches, copies and latencies.
std::optional<double> of_sheet_at_clock(const device::DeviceIdentity& device, const PeakRow& row);

}  // namespace llmprof::bench
