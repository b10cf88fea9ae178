// Theoretical occupancy: how many blocks of a launch one SM can hold, by what each block takes of the SM's warps,
// registers and shared memory. The rules are those of CUDA's own calculation (cuda_occupancy.h), the limits per compute
// capability those of the CUDA C++ Programming Guide; docs/formulas.md has both.
#pragma once

#include <cstdint>
#include <optional>

namespace llmprof {

// What one SM has, and in which portions it is handed out.
struct SmLimits {
  int64_t threads = 0;
  int64_t blocks = 0;
  int64_t registers = 65'536;  // 32-bit
  int64_t shared_bytes = 0;
  int64_t shared_granularity = 0;     // a block's shared memory is rounded up to it
  int64_t shared_reserved_bytes = 0;  // the driver's own part of every block
};
// Compute capability 7.0 to 12.1; empty for any other.
std::optional<SmLimits> sm_limits(int64_t major, int64_t minor);

// Of one block, as a recorder notes them. Shared memory: static and dynamic, without the driver's part.
struct BlockResources {
  int64_t threads = 0;
  int64_t registers_per_thread = 0;
  int64_t shared_bytes = 0;
};
// Blocks that fit on one SM at a time; empty if not even one does, as the numbers cannot be those of a launch then.
std::optional<int64_t> resident_blocks(const SmLimits& sm, const BlockResources& block);

constexpr int64_t kWarpThreads = 32;
constexpr int64_t warps_of(int64_t threads) { return (threads + kWarpThreads - 1) / kWarpThreads; }

}  // namespace llmprof
