// Sums over the steps of a stage that findings judge.
#include <algorithm>
#include <cmath>

#include "analyze/finding.h"
#include "base/statistics.h"

namespace llmprof {
namespace {

constexpr double kBoundMin = 0.005;  // of the figure: less is no change

}  // namespace

GainBound StageView::bound_of_waiting(double gain_ns) const {
  if (steps == 0 || wall == 0) return bound(gain_ns);
  return bound_above(gain_ns, per_step_ms(wall_ns()), per_step_ms(least_gpu_ns()));
}

GainBound StageView::bound_above(double gain_ns, double step_ms, double least_ms) const {
  GainBound out = bound(gain_ns);
  // A figure may hold several steps of the stage, as TTFT holds the chunks of a prompt, or its steps may take turns
  // with those of others. Of all of a figure the stage has one at least: windows of another GPU may be longer.
  const double in_stage_ms = consequence.now_ms * consequence.part;
  double times = in_stage_ms / step_ms;
  if (times >= 1 || consequence.part >= 1) times = std::max(1.0, std::round(times));
  out.to = std::min(out.from, std::max(out.to, consequence.now_ms - in_stage_ms + times * least_ms));
  return out;
}

bool StageView::waits_for_host() const {
  const double waits_ns =
      host.launch_ns + host.code_ns + idle_ns(IdleCause::kBlockingSync) + (host.drained ? host.after_sync_ns : 0);
  return !whole() && 2 * waits_ns > own_ns();
}

void FindingContext::bound_by_step(const StageView& stage, double gain_ns, const std::map<Row, double>& gain_of_step,
                                   Finding& finding) const {
  if (gain_of_step.empty()) {
    finding.bound = stage.bound_of_waiting(gain_ns);
    return;
  }
  std::vector<double> now, then;
  const std::vector<Row>& steps = stage.group->steps;
  const bool any_typical = std::any_of(steps.begin(), steps.end(), [&](Row s) { return typical[s] != 0; });
  for (const Row s : steps) {
    if (any_typical && typical[s] == 0) continue;
    const double step_ns = static_cast<double>(trace().steps.end_ns[s] - trace().steps.start_ns[s]);
    const std::map<Row, double>::const_iterator gain = gain_of_step.find(s);
    const double gained_ns = gain != gain_of_step.end() ? gain->second : 0;
    now.push_back(step_ns);
    then.push_back(
        std::min(step_ns, std::max(step_ns - gained_ns, static_cast<double>(context.groups.least_gpu_ns[s]))));
  }
  const double now_ns = std::max(1.0, median_of(now)), then_ns = median_of(then), left = then_ns / now_ns;
  if (left < 1 - kBoundMin) {
    finding.bound = stage.bound_above(stage.wall_ns() * (1 - left), now_ns / 1e6, then_ns / 1e6);
    return;
  }
  finding.evidence.push_back(measured("steps that it falls into, no typical one among them",
                                      static_cast<double>(gain_of_step.size()) / stage.count(), Unit::kFrac));
}

void FindingContext::bound_work(const StageView& stage, double gain_ns, Finding& finding) const {
  if (stage.waits_for_host()) {
    finding.advice.push_back(
        "First let the host keep up: while the GPU waits for it in most of each step, less work on the GPU only makes "
        "it "
        "wait longer.");
    return;
  }
  finding.bound = stage.bound(gain_ns);
}

void fill_sums(const Context& context, StageView& view) {
  const StageGroup& group = *view.group;
  view.steps = group.unattributed ? 1 : static_cast<int64_t>(group.steps.size());
  view.wall = group.unattributed ? group.wall_ns - group.not_recorded_ns : group.wall_ns;
  view.busy = group.busy_ns;
  view.gpu_ops = group.gpu_ops;
  view.launches = group.launches;
  view.idle_by_cause = group.idle_by_cause;
  for (const Row s : group.steps) view.least_gpu += context.groups.least_gpu_ns[s];
}

}  // namespace llmprof
