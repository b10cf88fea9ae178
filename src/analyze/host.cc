// CPU overhead against GPU time, per stage; and how much of the recording the answers rest on.
#include "analyze/analysis.h"
#include "derive/host_calls.h"

namespace llmprof {

void analyze_host(const Context& context, Report& report, std::vector<CannotTell>&) {
  const Trace& trace = context.trace;
  const Groups& groups = context.groups;
  std::vector<HostRecord> rows(groups.stages.size());
  std::vector<int64_t> outside_ns(groups.stages.size(), 0);  // in launches that no operator makes: replays of graphs
  HostCursor op_host(groups);
  for (OpId op = 0; op < trace.ops.size(); ++op) {
    HostRecord& row = rows[op_host.stage_at(trace.ops.thread[op], trace.ops.start_ns[op])];
    ++row.operators.n;
    // Nesting is exact, so the self times of a thread add up to the time in which it was inside operators.
    row.operators_ms.ns += trace.op_links.self_ns[op];
  }
  std::vector<uint8_t> launches(trace.api_calls.size());
  for (const ApiCallId api : trace.gpu_links.api)
    if (api != kNoRow) launches[api] = 1;
  enum : uint8_t { kUnseen, kSync, kNoSync };
  std::vector<uint8_t> kind_of_name(trace.strings.size());
  HostCursor api_host(groups);
  for (ApiCallId api = 0; api < trace.api_calls.size(); ++api) {
    uint8_t& kind = kind_of_name[index(trace.api_calls.name[api])];
    if (kind == kUnseen) kind = api_kind_of(trace.text(trace.api_calls.name[api])) == ApiKind::kSync ? kSync : kNoSync;
    if (launches[api] == 0 && kind == kNoSync) continue;
    const uint32_t stage = api_host.stage_at(trace.api_calls.thread[api], trace.api_calls.start_ns[api]);
    HostRecord& row = rows[stage];
    if (launches[api] != 0) {
      if (trace.api_links.op[api] == kNoRow) outside_ns[stage] += trace.api_calls.dur_ns[api];
      ++row.launches;
      row.launch_ms.ns += trace.api_calls.dur_ns[api];
    } else {
      ++row.syncs;
      row.sync_ms.ns += trace.api_calls.dur_ns[api];
    }
  }
  for (uint32_t s = 0; s < groups.stages.size(); ++s) {
    HostRecord& row = rows[s];
    row.gpu_busy_ms.ns = groups.stages[s].busy_ns;
    row.operators.known = row.operators_ms.known = !trace.ops.empty();
    if (row.operators == 0 && row.launches == 0 && row.syncs == 0 && row.gpu_busy_ms.ns == 0) continue;
    row.stage = stage_name(trace, groups, s);
    row.device = groups.stages[s].device;
    if (row.launches > 0)
      row.launch_mean_us = static_cast<double>(row.launch_ms.ns) / static_cast<double>(row.launches) / 1e3;
    if (row.gpu_busy_ms.ns > 0 && row.operators > 0)
      row.host_per_gpu =
          static_cast<double>(row.operators_ms.ns + outside_ns[s]) / static_cast<double>(row.gpu_busy_ms.ns);
    report.host.push_back(std::move(row));
  }
}

// Shares of the recording that the answers rest on.
void analyze_coverage(const Context& context, Report& report, std::vector<CannotTell>&) {
  const Trace& trace = context.trace;
  const Groups& groups = context.groups;
  int64_t linked_ns = 0, op_ns = 0, kernel_ns = 0, named_ns = 0, staged_ns = 0, arithmetic_ns = 0, covered_ns = 0;
  for (Row g = 0; g < trace.gpu_ops.size(); ++g) {
    const int64_t dur_ns = trace.gpu_ops.dur_ns[g];
    if (trace.gpu_links.api[g] != kNoRow) linked_ns += dur_ns;
    if (trace.gpu_links.op[g] != kNoRow) op_ns += dur_ns;
  }
  for (uint32_t k = 0; k < groups.kernels.size(); ++k) {
    const KernelKey& key = groups.kernel_keys.key(k);
    const KernelSums& sums = groups.kernels[k];
    kernel_ns += sums.total_ns;
    if (key.category != Category::kOther) named_ns += sums.total_ns;
    if (!groups.is_unattributed(key.stage)) staged_ns += sums.total_ns;
    if (is_arithmetic(key.category)) {
      arithmetic_ns += sums.total_ns;
      covered_ns += sums.covered_ns;
    }
  }
  const auto frac = [](int64_t part, int64_t whole) {
    return whole > 0 ? OptDouble(static_cast<double>(part) / static_cast<double>(whole)) : std::nullopt;
  };
  int64_t window_ns = 0, step_ns = 0;
  for (const Window& window : trace.windows) window_ns += window.end_ns - window.start_ns;
  for (const StageGroup& group : groups.stages)
    if (!group.unattributed) step_ns += group.wall_ns;
  report.coverage = {
      {"wall-in-stages", frac(step_ns, window_ns), "share of the recorded window that lies in a stage"},
      {"gpu-time-in-stages", frac(staged_ns, kernel_ns), "share of GPU time that lies in a stage"},
      {"gpu-time-with-category", frac(named_ns, kernel_ns), "share of GPU time whose kernels a rule names"},
      {"gpu-time-with-launch", frac(linked_ns, kernel_ns), "share of GPU time whose launching call is recorded"},
      {"gpu-time-with-operator", frac(op_ns, kernel_ns), "share of GPU time launched from a recorded operator"},
      {"arithmetic-with-shape", frac(covered_ns, arithmetic_ns),
       "share of GEMM, convolution and attention time with recorded shapes"},
  };
}

}  // namespace llmprof
