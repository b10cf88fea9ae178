#include "hardware/ncu_metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace llmprof {
namespace {

constexpr int32_t kAmpere = 8, kHopper = 9, kBlackwell = 10, kBlackwellConsumer = 12;

// Whether the counters of these chips were looked up (CUPTI 13.0: GA100, GA102, AD102, GH100, GB100, GB202).
bool is_listed(int32_t major) {
  return major == kAmpere || major == kHopper || major == kBlackwell || major == kBlackwellConsumer;
}

void add_once(std::vector<std::string>& names, const std::string& name) {
  if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
}

// Operations by the types of operands, where the chip counts them (CUPTI's list of counters of each chip, 13.0).
void add_tensor_paths(std::vector<std::string>& names, int32_t major) {
  const auto path = [&](std::string_view type) {
    names.push_back(fmt::format("sm__ops_path_tensor_src_{}.sum", type));
  };
  path("bf16_dst_fp32");
  path("tf32_dst_fp32");
  if (major == kHopper) {
    path("fp16");
    path("fp8");
    return;
  }
  path("fp16_dst_fp32");
  path("fp16_dst_fp16");
  if (major == kBlackwell) path("fp4_fp6_fp8_dst_fp32");
  if (major == kBlackwellConsumer) path("fp8_dst_fp32");
  if (major == kBlackwell || major == kBlackwellConsumer) path("fp4_dst_fp32");
}

constexpr std::string_view kTransition = "nvprof's name; the Nsight Compute manual's comparison of metrics";
constexpr std::string_view kNoChip = "no chip's list of counters has it (CUPTI 13.0)";
constexpr std::string_view kDeprecated = "deprecated in CUPTI 13.0's list of counters";
constexpr std::string_view kNotOnBlackwell = "not counted from compute capability 10 on (CUPTI 13.0)";

bool is_name(std::string_view text) {
  // "regex:" and "group:" have characters of their own, and stay as they are.
  if (text.starts_with("regex:") || text.starts_with("group:") || text.starts_with("breakdown:"))
    return text.find(':') + 1 < text.size();
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.' ||
           c == '-';
  });
}

// The tensor pipe's halves of before: what replaces them where they are gone.
std::string_view on_blackwell(std::string_view name, int32_t major) {
  if (major < kBlackwell) return {};
  if (name == "sm__pipe_tensor_op_hmma_cycles_active.avg.pct_of_peak_sustained_active")
    return "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active";
  if (name == "sm__pipe_tensor_op_hmma_cycles_active.avg.pct_of_peak_sustained_elapsed")
    return "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed";
  if (name == "sm__inst_executed_pipe_tensor_op_hmma.sum") return "sm__inst_executed_pipe_tensor_subpipe_hmma.sum";
  if (name == "sm__inst_executed_pipe_tensor_op_imma.sum") return "sm__inst_executed_pipe_tensor_subpipe_imma.sum";
  if (major < kBlackwellConsumer) return {};
  if (name == "dram__bytes_read.sum") return "dram__bytes_op_read.sum";
  if (name == "dram__bytes_write.sum") return "dram__bytes_op_write.sum";
  return {};
}

}  // namespace

std::vector<std::string> ncu_flop_metrics(int32_t major) {
  std::vector<std::string> names;
  for (const std::string_view width : {"f", "h", "d"})
    for (const std::string_view kind : {"add", "mul", "fma"})
      names.push_back(fmt::format("sm__sass_thread_inst_executed_op_{}{}_pred_on.sum", width, kind));
  names.emplace_back("sm__inst_executed_pipe_tensor.sum");
  add_tensor_paths(names, major);
  return names;
}

std::vector<std::string> ncu_traffic_metrics(int32_t major) {
  if (major >= kBlackwellConsumer) return {"dram__bytes_op_read.sum", "dram__bytes_op_write.sum"};
  return {"dram__bytes_read.sum", "dram__bytes_write.sum"};
}

std::vector<std::string> ncu_stall_metrics(int32_t major) {
  // By name only where the names are known: an expression takes whatever the chip has.
  if (!is_listed(major)) return {"regex:smsp__warp_issue_stalled_.*_per_warp_active"};
  std::vector<std::string_view> reasons = {"barrier",
                                           "branch_resolving",
                                           "dispatch_stall",
                                           "drain",
                                           "lg_throttle",
                                           "long_scoreboard",
                                           "membar",
                                           "mio_throttle",
                                           "misc",
                                           "no_instruction",
                                           "math_pipe_throttle",
                                           "not_selected",
                                           "selected",
                                           "short_scoreboard",
                                           "sleeping",
                                           "tex_throttle",
                                           "wait"};
  if (major <= kHopper) reasons.emplace_back("imc_miss");
  if (major == kHopper) reasons.emplace_back("gmma");
  std::vector<std::string> names;
  for (const std::string_view reason : reasons)
    names.push_back(fmt::format("smsp__warp_issue_stalled_{}_per_warp_active.pct", reason));
  return names;
}

std::vector<std::string> ncu_report_metrics(int32_t major) {
  std::vector<std::string> names = {"gpu__time_duration.sum"};
  const auto add = [&](const std::vector<std::string>& more) { names.insert(names.end(), more.begin(), more.end()); };
  add(ncu_traffic_metrics(major));
  // Of an unknown chip only those operations of the tensor pipe are asked that all have from Ampere on.
  add(ncu_flop_metrics(major));
  const bool old = major >= 0 && major < kAmpere;
  if (!is_listed(major))
    std::erase_if(names, [&](const std::string& name) {
      return name.find(old ? "__ops_path_" : "_src_fp16") != std::string::npos;
    });
  add({"sm__warps_active.avg.pct_of_peak_sustained_active", "sm__throughput.avg.pct_of_peak_sustained_elapsed",
       "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",
       "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
       "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed"});
  add(ncu_stall_metrics(major));
  return names;
}

std::string ncu_metric_list(const std::vector<std::string>& names) { return fmt::format("{}", fmt::join(names, ",")); }

const std::vector<RenamedMetric>& renamed_metrics() {
  static const std::vector<RenamedMetric> kTable = {
      {"smsp__warp_stall_memory_dependency_per_warp_active.pct",
       "smsp__warp_issue_stalled_long_scoreboard_per_warp_active.pct", kNoChip},
      {"smsp__warp_stall_not_selected_per_warp_active.pct", "smsp__warp_issue_stalled_not_selected_per_warp_active.pct",
       kNoChip},
      {"sm__sass_thread_inst_executed_op_hmma_inst.sum", "sm__inst_executed_pipe_tensor.sum", kNoChip},
      {"sm__sass_thread_inst_executed_op_dmma_inst.sum", "sm__inst_executed_pipe_tensor.sum", kNoChip},
      {"smsp__thread_inst_executed_per_inst_executed.ratio",
       "smsp__average_thread_inst_executed_per_inst_executed.ratio", kDeprecated},
      {"achieved_occupancy", "sm__warps_active.avg.pct_of_peak_sustained_active", kTransition},
      {"dram_read_bytes", "dram__bytes_read.sum", kTransition},
      {"dram_write_bytes", "dram__bytes_write.sum", kTransition},
      {"dram_read_throughput", "dram__bytes_read.sum.per_second", kTransition},
      {"dram_write_throughput", "dram__bytes_write.sum.per_second", kTransition},
      {"dram_utilization", "dram__throughput.avg.pct_of_peak_sustained_elapsed", kTransition},
      {"flop_count_sp_add", "smsp__sass_thread_inst_executed_op_fadd_pred_on.sum", kTransition},
      {"flop_count_sp_mul", "smsp__sass_thread_inst_executed_op_fmul_pred_on.sum", kTransition},
      {"flop_count_sp_fma", "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum", kTransition},
      {"flop_count_dp_add", "smsp__sass_thread_inst_executed_op_dadd_pred_on.sum", kTransition},
      {"flop_count_dp_mul", "smsp__sass_thread_inst_executed_op_dmul_pred_on.sum", kTransition},
      {"flop_count_dp_fma", "smsp__sass_thread_inst_executed_op_dfma_pred_on.sum", kTransition},
      {"gld_efficiency", "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.pct", kTransition},
      {"gst_efficiency", "smsp__sass_average_data_bytes_per_sector_mem_global_op_st.pct", kTransition},
      {"l2_tex_hit_rate", "lts__t_sector_hit_rate.pct", kTransition},
      {"tex_cache_hit_rate", "l1tex__t_sector_hit_rate.pct", kTransition},
      {"ipc", "smsp__inst_executed.avg.per_cycle_active", kTransition},
      {"inst_executed", "smsp__inst_executed.sum", kTransition},
      {"sm_efficiency", "smsp__cycles_active.avg.pct_of_peak_sustained_elapsed", kTransition},
      {"warp_execution_efficiency", "smsp__average_thread_inst_executed_per_inst_executed.ratio", kTransition},
      {"tensor_precision_fu_utilization", "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
       kTransition},
      {"inst_issued", "smsp__inst_issued.sum", kTransition},
      {"issue_slot_utilization", "smsp__issue_active.avg.pct_of_peak_sustained_active", kTransition},
      {"l2_tex_read_hit_rate", "lts__t_sector_op_read_hit_rate.pct", kTransition},
      {"shared_efficiency", "smsp__sass_average_data_bytes_per_wavefront_mem_shared.pct", kTransition},
      {"gld_transactions", "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum", kTransition},
      {"gld_transactions_per_request", "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio",
       kTransition},
      {"stall_constant_memory_dependency", "smsp__warp_issue_stalled_imc_miss_per_warp_active.pct", kTransition},
      {"stall_exec_dependency",
       "smsp__warp_issue_stalled_short_scoreboard_per_warp_active.pct,"
       "smsp__warp_issue_stalled_wait_per_warp_active.pct",
       kTransition},
      {"stall_inst_fetch", "smsp__warp_issue_stalled_no_instruction_per_warp_active.pct", kTransition},
      {"stall_memory_dependency", "smsp__warp_issue_stalled_long_scoreboard_per_warp_active.pct", kTransition},
      {"stall_memory_throttle",
       "smsp__warp_issue_stalled_drain_per_warp_active.pct,"
       "smsp__warp_issue_stalled_lg_throttle_per_warp_active.pct",
       kTransition},
      {"stall_not_selected", "smsp__warp_issue_stalled_not_selected_per_warp_active.pct", kTransition},
      {"stall_other",
       "smsp__warp_issue_stalled_dispatch_stall_per_warp_active.pct,"
       "smsp__warp_issue_stalled_misc_per_warp_active.pct",
       kTransition},
      {"stall_pipe_busy",
       "smsp__warp_issue_stalled_math_pipe_throttle_per_warp_active.pct,"
       "smsp__warp_issue_stalled_mio_throttle_per_warp_active.pct",
       kTransition},
      {"stall_sleeping", "smsp__warp_issue_stalled_sleeping_per_warp_active.pct", kTransition},
      {"stall_sync",
       "smsp__warp_issue_stalled_barrier_per_warp_active.pct,"
       "smsp__warp_issue_stalled_membar_per_warp_active.pct",
       kTransition},
      {"stall_texture", "smsp__warp_issue_stalled_tex_throttle_per_warp_active.pct", kTransition},
  };
  return kTable;
}

Result<ChosenMetrics> choose_ncu_metrics(std::string_view list, int32_t major) {
  ChosenMetrics out;
  while (true) {
    const size_t comma = std::min(list.find(','), list.size());
    std::string_view given = list.substr(0, comma);
    while (given.starts_with(' ')) given.remove_prefix(1);
    while (given.ends_with(' ')) given.remove_suffix(1);
    if (!is_name(given))
      return fail(fmt::format("expected names of metrics with commas between them, found \"{}\"", given), "--metrics",
                  "ncu --query-metrics lists them; --metrics dram__bytes_read.sum,sm__warps_active.avg",
                  ExitCode::kUsage);
    std::string today(given);
    const auto& table = renamed_metrics();
    const auto old = std::find_if(table.begin(), table.end(), [&](const auto& one) { return one.given == given; });
    const std::string_view why = old != table.end() ? old->source : kNotOnBlackwell;
    if (old != table.end()) today = old->today;
    std::vector<std::string> names;
    for (size_t from = 0; from <= today.size();) {
      const size_t end = std::min(today.find(',', from), today.size());
      const std::string name = today.substr(from, end - from);
      const std::string_view newer = on_blackwell(name, major);
      names.emplace_back(newer.empty() ? std::string_view(name) : newer);
      from = end + 1;
    }
    if (today = fmt::format("{}", fmt::join(names, " + ")); today != given)
      out.replaced.push_back(fmt::format("{} is {} today ({})", given, today, why));
    for (const std::string& name : names) add_once(out.names, name);
    if (comma == list.size()) return out;
    list.remove_prefix(comma + 1);
  }
}

}  // namespace llmprof
