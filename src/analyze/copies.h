// Copies by what they move and over what: between host and GPU and between GPUs every byte crosses a link once; inside
// a GPU every byte is read from its memory and written to it.
//
// What always holds: a copy over a link is held against that link, never against the GPU's memory. Where the link's
// rate is not known there is no roof. The ceiling of a copy from or to pageable memory is that of the link as well:
// what it falls short by is what staging through a pinned buffer costs.
#pragma once

#include <array>
#include <span>
#include <string_view>
#include <vector>

#include "analyze/analysis.h"

namespace llmprof {

// In words: "host to device".
std::string_view copy_path_name(CopyPath path);

// Ceiling of one path; empty where it is not known.
OptDouble copy_bytes_per_s(const DeviceReport* device, CopyPath path);

// Bytes that copies of `moved` bytes in all bring over their link, or read and write in their GPU's memory.
double copy_traffic(CopyPath path, double moved);

// Least traffic of one GPU activity: of a copy as above, of anything else by its arithmetic (`work` of gpu_links). 0 if
// unknown.
double activity_bytes(const Trace& trace, GpuOpId gpu_op);

// Copies together, by path; only such whose bytes are recorded.
struct PathSums {
  int64_t copies = 0;
  double bytes = 0, time_ns = 0;  // bytes as copy_traffic has them
};
struct CopySums {
  std::array<PathSums, static_cast<size_t>(CopyPath::kCount)> paths;
  void add(CopyPath path, int64_t copies, int64_t moved, int64_t time_ns);
};
CopySums sum_copies(const Context& context, std::span<const uint32_t> kernels);

// Time in ns that the same bytes need at the full rate of each path, one path after the other; empty where the rate of
// one of them is unknown.
OptDouble least_copy_ns(const DeviceReport* device, const CopySums& sums);

// The rate of each path as evidence, with that of its link or memory where it is known: "rate from host to device, of
// 55.3 GB/s of the link".
void add_copy_rates(const DeviceReport* device, const CopySums& sums, std::vector<Evidence>& evidence);

}  // namespace llmprof
