// Names of Nsight Compute's metrics, which differ between chips: those that a report is made of
// (analyze/kernel_figures.h reads them), and what names of older tools and plans are called today. A name that a chip
// lacks ends ncu before it has profiled anything, so what is not known of a chip is not asked of it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace llmprof {

// `major` is that of the compute capability, -1 where it is not known.

// Thread instructions of the CUDA cores, and operations of the tensor pipe by type.
std::vector<std::string> ncu_flop_metrics(int32_t major);
// Bytes read from and written to DRAM.
std::vector<std::string> ncu_traffic_metrics(int32_t major);
// What warps wait for, by reason.
std::vector<std::string> ncu_stall_metrics(int32_t major);
// All that a report has of a profiled kernel, in few passes: duration, traffic, FLOPs, occupancy, throughputs, stalls.
std::vector<std::string> ncu_report_metrics(int32_t major);

// Names with commas between them, as --metrics takes them.
std::string ncu_metric_list(const std::vector<std::string>& names);

// A name that is no metric of Nsight Compute today, and the one that is; of a sum, its parts with commas between them.
struct RenamedMetric {
  std::string_view given, today;
  std::string_view source;  // who says so
};
const std::vector<RenamedMetric>& renamed_metrics();

struct ChosenMetrics {
  std::vector<std::string> names;     // each once, in the order given
  std::vector<std::string> replaced;  // what was replaced by what and why, in a sentence each
};
// "a,b,c" as given to --metrics, today's names in the place of older ones. The error quotes what is no name.
Result<ChosenMetrics> choose_ncu_metrics(std::string_view list, int32_t major);

}  // namespace llmprof
