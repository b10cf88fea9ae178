// Counterfactuals that the user asks for: what a step of each stage would take, by replay.
#include "replay/what_if.h"

#include <algorithm>
#include <cmath>

#include "analyze/analysis.h"
#include "analyze/processor.h"
#include "analyze/recording_changes.h"
#include "base/statistics.h"
#include "replay/undisturbed.h"

namespace llmprof {
namespace {

using Combination = std::vector<const replay::WhatIf*>;

std::string joined_ids(const Combination& combination) {
  std::string out;
  for (const replay::WhatIf* one : combination) out += (out.empty() ? "" : ",") + std::string(one->id);
  return out;
}

std::string forbidden(const Combination& combination, const replay::Recording& recording,
                      const replay::Durations& changed, const std::vector<StepId>& steps) {
  std::string out;
  for (const replay::WhatIf* one : combination) {
    const std::string why = one->forbidden != nullptr ? one->forbidden(recording, changed, steps) : std::string();
    if (!why.empty()) out += (out.empty() ? "" : "; ") + why;
  }
  return out;
}

// The replayed steps of one stage, by their place among all replayed ones.
struct StageSteps {
  size_t all = 0;
  // Of those that replay gives back: else it says nothing of what they would take.
  std::vector<size_t> places;
  std::vector<StepId> steps;
  std::vector<double> errors;  // of those that no latency was learned from
};

WhatIfRecord row_of(const StageSteps& stage, const std::vector<int64_t>& now, const std::vector<int64_t>& then) {
  std::vector<double> before, after, gains;
  for (const size_t at : stage.places) {
    before.push_back(static_cast<double>(now[at]));
    after.push_back(static_cast<double>(then[at]));
    gains.push_back(before.back() - after.back());
  }
  WhatIfRecord row;
  row.steps = static_cast<int64_t>(stage.steps.size());
  row.step_ms = median_of(before) / 1e6;
  row.then_ms = median_of(after) / 1e6;
  row.gain_ms = median_of(gains) / 1e6;
  constexpr size_t kStepsMin = 3;
  if (gains.size() >= kStepsMin) {
    const Interval interval = bootstrap_median(gains);
    const double unsure_ms = stage.errors.empty() ? 0 : median_of(stage.errors) * row.step_ms;
    row.ci95_low_ms = interval.low / 1e6 - unsure_ms;
    row.ci95_high_ms = interval.high / 1e6 + unsure_ms;
  }
  if (row.step_ms > 0) row.gain_frac = row.gain_ms / row.step_ms;
  return row;
}

}  // namespace

void analyze_what_ifs(const Context& context, Report& report, std::vector<CannotTell>& cannot_tell) {
  if (context.options.what_ifs.empty()) return;
  const Groups& groups = context.groups;
  if (context.replayed.steps.empty() || on_cpu(context)) {
    cannot_tell.push_back(
        {"What would the changes of --what-if bring?",
         "no step was recorded whole with the calls that launched its kernels, so none can be replayed",
         "record with llmprof run, or with torch.profiler on CPU and CUDA"});
    return;
  }
  std::vector<StageSteps> stages(groups.stages.size());
  for (size_t at = 0; at < context.replayed.steps.size(); ++at) {
    const replay::StepTime& time = context.replayed.steps[at];
    StageSteps& stage = stages[groups.stage_of_step[time.step]];
    ++stage.all;
    if (!replays_step(time)) continue;
    stage.places.push_back(at);
    stage.steps.push_back(time.step);
    if (!time.learned) stage.errors.push_back(std::fabs(time.error_frac()));
  }
  const replay::StepReplay replay(context.trace);
  const replay::RecorderCostModel costs(context.costs, context.replayed.calls.factor);
  const replay::Recording recording(replay, costs);
  replay::Durations durations(replay.timeline());
  replay::Latencies latencies = replay.latencies();
  if (costs.known()) replay::take_recorder_out(replay.timeline(), costs, durations, latencies);
  replay::assume_unseen(costs, latencies);
  const std::vector<int64_t> now = replay.windows(durations, latencies);
  for (const Combination& combination : context.options.what_ifs) {
    replay::Durations changed = durations;
    replay::Latencies changed_latencies = latencies;
    for (const replay::WhatIf* one : combination) one->change(recording, changed, changed_latencies);
    const std::vector<int64_t> then = replay.windows(changed, changed_latencies);
    for (uint32_t s = 0; s < stages.size(); ++s) {
      const StageSteps& stage = stages[s];
      if (stage.steps.empty()) continue;
      WhatIfRecord row = row_of(stage, now, then);
      row.what_if = joined_ids(combination);
      row.stage = stage_name(context.trace, groups, s);
      row.device = groups.stages[s].device;
      row.forbidden = forbidden(combination, recording, changed, stage.steps);
      report.what_ifs.push_back(std::move(row));
    }
  }
  for (uint32_t s = 0; s < stages.size(); ++s)
    if (stages[s].all > 0 && stages[s].steps.empty())
      cannot_tell.push_back(
          {"What would the changes of --what-if bring to " + stage_name(context.trace, groups, s) + "?",
           "replay does not give its steps back as they were recorded",
           "see the critical path's error and what was not recorded"});
}

}  // namespace llmprof
