#include "analyze/occupancy.h"

#include <algorithm>

#include "hardware/occupancy.h"

namespace llmprof {
namespace {

// Limits by compute capability; what the recording says of the device itself goes before.
std::optional<SmLimits> limits_of(const Devices& devices, Row row) {
  std::optional<SmLimits> limits = sm_limits(devices.compute_major[row], devices.compute_minor[row]);
  if (!limits) return limits;
  if (devices.threads_per_sm_max[row] > 0) limits->threads = devices.threads_per_sm_max[row];
  if (devices.registers_per_sm[row] > 0) limits->registers = devices.registers_per_sm[row];
  constexpr int64_t kSharedMax = 1 << 30;  // files may hold anything
  if (devices.shared_bytes_per_sm[row] > 0 && devices.shared_bytes_per_sm[row] <= kSharedMax)
    limits->shared_bytes = devices.shared_bytes_per_sm[row];
  return limits;
}

// 0 unless every side is possible.
int64_t block_threads(const LaunchConfigs& c, LaunchConfigId config) {
  constexpr int32_t kSideMax = 1024;
  for (const int32_t side : {c.block_x[config], c.block_y[config], c.block_z[config]})
    if (side < 1 || side > kSideMax) return 0;
  return int64_t{c.block_x[config]} * c.block_y[config] * c.block_z[config];
}

}  // namespace

Occupancy occupancy_of(const Trace& trace, LaunchConfigId config, int64_t device) {
  Occupancy out;
  const LaunchConfigs& c = trace.launch_configs;
  if (config >= c.size()) return out;
  const double recorded = static_cast<double>(c.occupancy_frac[config]);
  if (recorded > 0) {
    out.frac = recorded;
    out.provenance = Provenance::kRecorded;
  }
  const Devices& devices = trace.devices;
  const std::vector<int32_t>::const_iterator found = std::find(devices.device.begin(), devices.device.end(), device);
  if (found == devices.device.end()) return out;
  const Row row = static_cast<Row>(found - devices.device.begin());
  const std::optional<SmLimits> limits = limits_of(devices, row);
  if (!limits || c.registers_per_thread[config] < 0 || c.shared_bytes[config] < 0) return out;
  const int64_t threads = block_threads(c, config);
  const std::optional<int64_t> fit =
      resident_blocks(*limits, {threads, c.registers_per_thread[config], c.shared_bytes[config]});
  if (!fit) return out;
  const double warps = static_cast<double>(warps_of(threads)),
               most = static_cast<double>(limits->threads) / kWarpThreads;
  out.theoretical = static_cast<double>(*fit) * warps / most;
  if (out.frac || devices.sm_count[row] <= 0) return out;
  const double grid = static_cast<double>(c.grid_x[config]) * c.grid_y[config] * c.grid_z[config];
  if (!(grid > 0)) return out;
  out.frac = std::min(static_cast<double>(*fit), grid / devices.sm_count[row]) * warps / most;
  out.provenance = Provenance::kComputed;
  return out;
}

}  // namespace llmprof
