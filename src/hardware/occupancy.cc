#include "hardware/occupancy.h"

#include <algorithm>
#include <limits>

namespace llmprof {
namespace {

constexpr int64_t kKib = 1024;
constexpr int64_t kBlockThreadsMax = 1024;
constexpr int64_t kThreadRegistersMax = 256;
constexpr int64_t kRegisterGranularity = 256;  // of a warp
constexpr int64_t kSubPartitions = 4;          // of an SM, each with a quarter of its registers

struct Capability {
  int64_t major, minor;
  SmLimits limits;
};
constexpr SmLimits limits_of(int64_t threads, int64_t blocks, int64_t shared_kib, bool volta) {
  return {threads, blocks, 65'536, shared_kib * kKib, volta ? 256 : 128, volta ? 0 : kKib};
}
constexpr Capability kCapabilities[] = {
    {7, 0, limits_of(2048, 32, 96, true)},    {7, 2, limits_of(2048, 32, 96, true)},
    {7, 5, limits_of(1024, 16, 64, true)},    {8, 0, limits_of(2048, 32, 164, false)},
    {8, 6, limits_of(1536, 16, 100, false)},  {8, 7, limits_of(1536, 16, 164, false)},
    {8, 9, limits_of(1536, 24, 100, false)},  {9, 0, limits_of(2048, 32, 228, false)},
    {10, 0, limits_of(2048, 32, 228, false)}, {10, 3, limits_of(2048, 32, 228, false)},
    {11, 0, limits_of(1536, 24, 228, false)}, {12, 0, limits_of(1536, 24, 100, false)},
    {12, 1, limits_of(1536, 24, 100, false)},
};

constexpr int64_t round_up(int64_t value, int64_t step) { return (value + step - 1) / step * step; }

// Registers are handed out to whole warps, inside one sub-partition each.
int64_t blocks_by_registers(const SmLimits& sm, const BlockResources& block) {
  const int64_t per_warp = round_up(block.registers_per_thread * kWarpThreads, kRegisterGranularity);
  if (per_warp == 0) return std::numeric_limits<int64_t>::max();
  const int64_t warps = warps_of(block.threads);
  // The hardware checks a launch as if its warps were spread evenly over the sub-partitions.
  if (per_warp * round_up(warps, kSubPartitions) > sm.registers) return 0;
  return sm.registers / kSubPartitions / per_warp * kSubPartitions / warps;
}

}  // namespace

std::optional<SmLimits> sm_limits(int64_t major, int64_t minor) {
  for (const Capability& row : kCapabilities)
    if (row.major == major && row.minor == minor) return row.limits;
  return std::nullopt;
}

std::optional<int64_t> resident_blocks(const SmLimits& sm, const BlockResources& block) {
  if (block.threads < 1 || block.threads > kBlockThreadsMax || block.registers_per_thread < 0 ||
      block.registers_per_thread > kThreadRegistersMax || block.shared_bytes < 0 ||
      block.shared_bytes > sm.shared_bytes)
    return std::nullopt;
  const int64_t shared = round_up(block.shared_bytes + sm.shared_reserved_bytes, sm.shared_granularity);
  const int64_t by_shared = shared > 0 ? sm.shared_bytes / shared : std::numeric_limits<int64_t>::max();
  const int64_t by_warps = sm.threads / kWarpThreads / warps_of(block.threads);
  const int64_t blocks = std::min({by_warps, blocks_by_registers(sm, block), by_shared, sm.blocks});
  if (blocks < 1) return std::nullopt;
  return blocks;
}

}  // namespace llmprof
