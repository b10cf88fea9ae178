// A step of each stage: medians and means of its length, of what the GPU did in it and of its idle time.
#include <map>
#include <tuple>

#include "analyze/analysis.h"
#include "base/statistics.h"

namespace llmprof {
namespace {

struct StepSums {
  int64_t idle_ns = 0, not_recorded_ns = 0, kernels_ns = 0, copies_ns = 0;
};

std::vector<StepSums> sum_steps(const Trace& trace) {
  std::vector<StepSums> all(trace.steps.size());
  for (Row gap = 0; gap < trace.gaps.size(); ++gap) {
    if (trace.gaps.step[gap] == kNoRow) continue;
    StepSums& sums = all[trace.gaps.step[gap]];
    (trace.gaps.cause[gap] == IdleCause::kNotRecorded ? sums.not_recorded_ns : sums.idle_ns) += trace.gaps.dur_ns[gap];
  }
  for (Row op = 0; op < trace.gpu_ops.size(); ++op) {
    if (trace.gpu_links.step[op] == kNoRow) continue;
    StepSums& sums = all[trace.gpu_links.step[op]];
    (trace.gpu_ops.kind[op] == GpuOpKind::kKernel ? sums.kernels_ns : sums.copies_ns) += trace.gpu_ops.dur_ns[op];
  }
  return all;
}

class Figure {
 public:
  void add(int64_t ns) { values_ms_.push_back(static_cast<double>(ns) / 1e6); }
  OptDouble median() const { return values_ms_.empty() ? OptDouble() : OptDouble(median_of(values_ms_)); }
  OptDouble mean() const {
    if (values_ms_.empty()) return std::nullopt;
    double sum = 0;
    for (const double ms : values_ms_) sum += ms;
    return sum / static_cast<double>(values_ms_.size());
  }

 private:
  std::vector<double> values_ms_;
};

}  // namespace

void analyze_stage_steps(const Context& context, Report& report, std::vector<CannotTell>&) {
  const Steps& steps = context.trace.steps;
  const std::vector<StepSums> sums = sum_steps(context.trace);
  using Stage = std::tuple<int32_t, StringId, StageKind>;
  std::map<Stage, int64_t> in_all;
  for (Row s = 0; s < steps.size(); ++s)
    if (steps.phase[s] != StepPhase::kWarmUp) ++in_all[Stage{steps.device[s], steps.stage[s], steps.kind[s]}];
  for (const StageGroup& group : context.groups.stages) {
    if (group.unattributed || group.is_warm_up() || group.steps.empty()) continue;
    Figure any, length, busy, idle, kernels, copies;
    StageStepRecord row;
    for (const Row s : group.steps) {
      const int64_t ns = steps.end_ns[s] - steps.start_ns[s];
      any.add(ns);
      if (group.missing == MissingKernels::kAll || group.state == StepState::kWindowEdge || sums[s].not_recorded_ns > 0)
        continue;
      ++row.recorded_steps;
      length.add(ns);
      busy.add(context.groups.busy_ns[s]);
      idle.add(sums[s].idle_ns);
      kernels.add(sums[s].kernels_ns);
      copies.add(sums[s].copies_ns);
    }
    const Figure& lengths = row.recorded_steps > 0 ? length : any;
    row.stage = stage_name(context.trace, group);
    row.device = group.device;
    row.steps = static_cast<int64_t>(group.steps.size());
    row.all_steps = in_all[Stage{group.device, group.name, group.kind}];
    row.step_p50_ms = lengths.median().value_or(0);
    row.step_mean_ms = lengths.mean().value_or(0);
    row.gpu_busy_p50_ms = busy.median();
    row.gpu_busy_mean_ms = busy.mean();
    row.gpu_idle_p50_ms = idle.median();
    row.gpu_idle_mean_ms = idle.mean();
    row.kernels_p50_ms = kernels.median();
    row.kernels_mean_ms = kernels.mean();
    row.copies_p50_ms = copies.median();
    row.copies_mean_ms = copies.mean();
    report.stage_steps.push_back(std::move(row));
  }
}

}  // namespace llmprof
