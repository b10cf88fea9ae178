#include "analyze/consequence.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "analyze/requests.h"
#include "base/statistics.h"
#include "derive/steps.h"

namespace llmprof {
namespace {

double window_ns(const Steps& steps, Row s) { return static_cast<double>(steps.end_ns[s] - steps.start_ns[s]); }

double of_stage(double gain_ns, double wall_ns) { return wall_ns > 0 ? std::clamp(gain_ns / wall_ns, 0.0, 1.0) : 0; }

// Steps in unrecorded time are those of the stage that they are like.
using StageName = std::tuple<StringId, StageKind, StageSource, StepPhase>;
StageName name_of_stage(const StageGroup& group) { return {group.name, group.kind, group.source, group.phase}; }
using Shares = std::map<StageName, double>;

double share_of(const Shares& shares, const StageName& stage) {
  const Shares::const_iterator at = shares.find(stage);
  return at != shares.end() ? at->second : 0;
}

// Adds the shares of `steps` in `whole_ns` for stages that have none yet.
void add_shares(const Context& context, const std::vector<Row>& steps, double whole_ns, Shares& shares) {
  Shares sums_ns;
  const Groups& groups = context.groups;
  for (const Row s : steps)
    sums_ns[name_of_stage(groups.stages[groups.stage_of_step[s]])] += window_ns(context.trace.steps, s);
  for (const auto& [stage, ns] : sums_ns)
    if (whole_ns > 0) shares.emplace(stage, std::min(1.0, ns / whole_ns));
}

// Shares of the stages in what the requests of one device wait for. Stages that only the first request has count by
// their share of all requests.
struct Parts {
  Shares ttft, step;

  void add(const Context& context, const std::vector<const RequestTimes*>& prompts, const std::vector<Row>& making) {
    std::vector<Row> before;
    double ttft_ns = 0, making_ns = 0;
    for (const RequestTimes* request : prompts) {
      before.insert(before.end(), request->before_token.begin(), request->before_token.end());
      ttft_ns += *request->ttft_ns;
    }
    for (const Row s : making) making_ns += window_ns(context.trace.steps, s);
    add_shares(context, before, ttft_ns, ttft);
    add_shares(context, making, making_ns, step);
  }
};

Parts parts_of(const Context& context, int32_t device) {
  const Requests requests = find_requests(context.trace, device);
  Parts parts;
  parts.add(context, requests.typical_prompts(), requests.typical_steps(context.trace.steps));
  std::vector<const RequestTimes*> prompts;
  std::vector<Row> making;
  for (const RequestTimes& request : requests.all) {
    if (request.ttft_ns) prompts.push_back(&request);
    making.insert(making.end(), request.making.begin(), request.making.end());
  }
  parts.add(context, prompts, making);
  return parts;
}

// Time per step of the stage.
double usual_step_ms(const Context& context, const StageGroup& group) {
  std::vector<double> windows;
  for (const Row s : group.steps) windows.push_back(window_ns(context.trace.steps, s) / 1e6);
  return windows.empty() ? 0 : median_of(windows);
}

// Where no GPU work is recorded at all, the program's ranges are all there is.
bool judged(const Context& context, const StageGroup& group) {
  const bool known = group.missing != MissingKernels::kAll || context.trace.gpu_ops.empty();
  return !group.unattributed && !group.is_warm_up() && known;
}

bool is_before_token(const StageGroup& group) {
  return group.kind == StageKind::kPrefill || group.kind == StageKind::kVision;
}

}  // namespace

double StageConsequence::share(double gain_ns, double wall_ns) const {
  return of_stage(gain_ns, wall_ns) * part * weight;
}

GainBound StageConsequence::bound(double gain_ns, double wall_ns) const {
  return {metric, now_ms, now_ms * (1 - of_stage(gain_ns, wall_ns) * part)};
}

std::vector<StageConsequence> stage_consequences(const Context& context, const Report& report) {
  const std::vector<StageGroup>& groups = context.groups.stages;
  static const Headline kNothing;
  const Headline& headline = report.latency ? report.latency->headline : kNothing;
  const TypicalTimes typical =
      typical_times(context.trace, find_requests(context.trace, main_device(context.trace.steps)));
  std::map<int32_t, Parts> parts;
  std::map<int32_t, double> walls_ns, before_ns;  // of all stages that are judged, by device; and before first tokens
  for (const StageGroup& group : groups) {
    if (!judged(context, group)) continue;
    if (parts.count(group.device) == 0) parts.emplace(group.device, parts_of(context, group.device));
    walls_ns[group.device] += static_cast<double>(group.wall_ns);
    if (is_before_token(group)) before_ns[group.device] += static_cast<double>(group.wall_ns);
  }
  std::vector<StageConsequence> out(groups.size());
  for (uint32_t s = 0; s < groups.size(); ++s) {
    const StageGroup& group = groups[s];
    if (group.unattributed) {
      out[s].metric = GainMetric::kRecorded;
      out[s].now_ms = static_cast<double>(group.wall_ns - group.not_recorded_ns) / 1e6;
    }
    if (!judged(context, group)) continue;
    const Parts& mine = parts[group.device];
    const StageName name = name_of_stage(group);
    const double of_ttft = share_of(mine.ttft, name), of_step = share_of(mine.step, name);
    StageConsequence& row = out[s];
    const bool before = is_before_token(group);
    const double wall_ns = walls_ns[group.device];
    // Where requests cannot be told apart, time before first tokens counts by its part of the time in steps.
    const OptDouble by_walls = wall_ns > 0 ? OptDouble(before_ns[group.device] / wall_ns) : OptDouble();
    const OptDouble before_frac = typical.ttft_frac ? typical.ttft_frac : by_walls;
    if (before && headline.ttft_ms && of_ttft > 0) {
      row.metric = GainMetric::kTtft;
      row.now_ms = *headline.ttft_ms;
      row.part = of_ttft;
      row.of_request = before_frac.value_or(1);
    } else if (group.kind == StageKind::kDecode && headline.tpot_ms && of_step > 0) {
      row.metric = GainMetric::kTpot;
      row.now_ms = *headline.tpot_ms;
      row.part = of_step;
      row.of_request = 1 - before_frac.value_or(0);
    } else {
      row.metric = GainMetric::kStep;
      row.now_ms = usual_step_ms(context, group);
      if (of_step > 0) row.of_request = 1 - before_frac.value_or(0);
      row.weight = of_step > 0 ? of_step : wall_ns > 0 ? static_cast<double>(group.wall_ns) / wall_ns : 1;
    }
  }
  return out;
}

}  // namespace llmprof
