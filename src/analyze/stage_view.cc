// Sums over the steps of a stage that findings judge: all complete ones less its cold first steps.
#include <algorithm>
#include <cmath>

#include "analyze/finding.h"

namespace llmprof {
namespace {

// Distinct calls that launched activities of cold steps, by stage.
std::vector<int64_t> cold_launches(const Context& context) {
  const Trace& trace = context.trace;
  std::vector<int64_t> out(context.groups.stages.size(), 0);
  std::vector<uint8_t> seen(trace.api_calls.size(), 0);
  for (Row g = 0; g < trace.gpu_ops.size(); ++g) {
    const Row step = trace.gpu_links.step[g], api = trace.gpu_links.api[g];
    if (step == kNoRow || context.groups.cold_extra_ns[step] <= 0 || api == kNoRow || seen[api] != 0) continue;
    seen[api] = 1;
    ++out[context.groups.stage_of_step[step]];
  }
  return out;
}

}  // namespace

GainBound StageView::bound_of_waiting(double gain_ns) const {
  GainBound out = bound(gain_ns);
  if (steps == 0 || wall == 0) return out;
  // A figure may hold several steps of the stage, as TTFT holds the chunks of a prompt.
  const double in_stage_ms = consequence.now_ms * consequence.part;
  const double times = std::max(1.0, std::round(in_stage_ms / per_step_ms(wall_ns())));
  const double least_ms = consequence.now_ms - in_stage_ms + times * per_step_ms(least_gpu_ns());
  out.to = std::min(out.from, std::max(out.to, least_ms));
  return out;
}

void fill_judged_sums(const Context& context, StageView& view) {
  const Groups& groups = context.groups;
  const Trace& trace = context.trace;
  const StageGroup& group = *view.group;
  view.steps = group.unattributed ? 1 : static_cast<int64_t>(group.steps.size());
  view.wall = group.unattributed ? group.wall_ns - group.not_recorded_ns : group.wall_ns;
  view.busy = group.busy_ns;
  view.gpu_ops = group.gpu_ops;
  view.launches = group.launches;
  view.idle_by_cause = group.idle_by_cause;
  int64_t cold_wall = 0, cold_idle = 0;
  for (const Row s : group.steps) {
    if (groups.cold_extra_ns[s] <= 0) {
      view.least_gpu += groups.least_gpu_ns[s];
      continue;
    }
    ++view.cold_steps;
    cold_wall += trace.steps.end_ns[s] - trace.steps.start_ns[s];
  }
  if (view.cold_steps == 0) return;
  view.steps -= view.cold_steps;
  const auto of_cold = [&](Row step) {
    return step != kNoRow && groups.stage_of_step[step] == view.stage && groups.cold_extra_ns[step] > 0;
  };
  for (Row g = 0; g < trace.gaps.size(); ++g) {
    if (!of_cold(trace.gaps.step[g])) continue;
    cold_idle += trace.gaps.dur_ns[g];
    view.idle_by_cause[static_cast<size_t>(trace.gaps.cause[g])] -= trace.gaps.dur_ns[g];
  }
  for (Row g = 0; g < trace.gpu_ops.size(); ++g) view.gpu_ops -= of_cold(trace.gpu_links.step[g]) ? 1 : 0;
  view.launches -= cold_launches(context)[view.stage];
  view.wall -= cold_wall;
  view.busy -= std::max<int64_t>(0, cold_wall - cold_idle);  // what is neither idle nor unrecorded
}

std::vector<KernelSums> judged_kernels(const Context& context) {
  std::vector<KernelSums> out = context.groups.kernels;
  const Trace& trace = context.trace;
  for (Row g = 0; g < trace.gpu_ops.size(); ++g) {
    const Row step = trace.gpu_links.step[g];
    if (step == kNoRow || context.groups.cold_extra_ns[step] <= 0) continue;
    KernelSums& sums = out[context.groups.kernel_of[g]];
    --sums.calls;
    sums.total_ns -= trace.gpu_ops.dur_ns[g];
  }
  return out;
}

}  // namespace llmprof
