#include "analyze/undisturbed.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include "analyze/step_recording.h"
#include "base/statistics.h"
#include "replay/undisturbed.h"

namespace llmprof {
namespace {

constexpr size_t kUnrecordedMin = 5;  // steps whose median stands for a stage

// Of ranges that hold several steps (an encoder, and the prompt behind it), those of one range are one time: where
// nothing was recorded nobody can part them.
struct StageTimesOf {
  std::vector<double> recorded, replayed, unrecorded;  // ns
  AnnotationId range = kNoRow;                         // of the latest step
  std::vector<StepId> steps;                           // all of them
  int64_t graph_nodes = 0, kernels = 0;                // of the recorded ones
  OptDouble disagreement;                              // of replayed and unrecorded ones
};

void add_time(double ns, bool goes_on, std::vector<double>& times) {
  if (goes_on && !times.empty())
    times.back() += ns;
  else
    times.push_back(ns);
}

// The interval of a median, wider by what is not known of the costs that were taken out.
Interval interval_of(const std::vector<double>& values, double unsure_ns) {
  Interval interval = bootstrap_median(values);
  interval.low -= unsure_ns;
  interval.high += unsure_ns;
  return interval;
}

// What of a replayed step is not known, of a cost of which such a share is not.
double unsure_of(const StageTimesOf& times, double unsure_frac, double cost_ns) {
  return unsure_frac * std::fabs(cost_ns) +
         replay::kNodeUnsureNs * static_cast<double>(times.graph_nodes) / static_cast<double>(times.recorded.size());
}

UndisturbedRecord record_of(const StageTimesOf& times, double unsure_frac) {
  UndisturbedRecord row;
  row.recorded_steps = static_cast<int64_t>(times.recorded.size());
  row.unrecorded_steps = static_cast<int64_t>(times.unrecorded.size());
  row.replayed_steps = static_cast<int64_t>(times.replayed.size());
  const auto median_ms = [](const std::vector<double>& ns) { return ns.empty() ? OptDouble() : median_of(ns) / 1e6; };
  row.recorded_ms = median_ms(times.recorded);
  row.replayed_ms = median_ms(times.replayed);
  row.unrecorded_ms = median_ms(times.unrecorded);
  row.agree_frac = times.disagreement;
  const std::vector<double>* chosen = &times.recorded;
  double unsure_ns = 0;
  if (times.unrecorded.size() >= kUnrecordedMin || (times.replayed.empty() && times.recorded.empty())) {
    row.source = StepTimeSource::kUnrecorded;
    chosen = &times.unrecorded;
  } else if (!times.replayed.empty()) {
    row.source = StepTimeSource::kReplayed;
    chosen = &times.replayed;
    unsure_ns = unsure_of(times, unsure_frac, (*row.recorded_ms - *row.replayed_ms) * 1e6);
  } else {
    row.source = StepTimeSource::kRecorded;
  }
  row.step_ms = median_of(*chosen) / 1e6;
  const Interval interval = interval_of(*chosen, unsure_ns);
  row.ci95_low_ms = interval.low / 1e6;
  row.ci95_high_ms = interval.high / 1e6;
  return row;
}

std::vector<double> window_lengths(const Trace& trace) {
  std::vector<double> out(trace.steps.size());
  for (Row s = 0; s < out.size(); ++s) out[s] = static_cast<double>(trace.steps.end_ns[s] - trace.steps.start_ns[s]);
  return out;
}

// By step: whether replay gives it back and knows it without the recorder.
std::vector<uint8_t> replays(const Trace& trace, const std::vector<replay::StepTime>& steps) {
  std::vector<uint8_t> out(trace.steps.size(), 0);
  for (const replay::StepTime& time : steps) out[time.step] = time.undisturbed_ns && replays_step(time) ? 1 : 0;
  return out;
}

// Stages of which unrecorded steps are known by their ranges (derive/unseen_steps.h): one may hold what is several
// steps where it is recorded, or its length is divided evenly. Only ranges as a whole can be compared then.
std::set<std::tuple<int32_t, StringId>> known_by_ranges(const Steps& steps,
                                                        const std::vector<StepRecording>& recordings) {
  std::set<std::tuple<int32_t, StringId>> out;
  for (Row s = 0; s < steps.size(); ++s)
    if (recordings[s] == StepRecording::kAlone && steps.annotation[s] != kNoRow)
      out.insert({steps.device[s], steps.stage[s]});
  return out;
}

}  // namespace

ReplayedSteps replay_steps(const Trace& trace, const RecorderCosts& costs, const HostPace& host_pace) {
  const replay::StepReplay replay(trace);
  ReplayedSteps out{replay.as_recorded(), {}};
  const replay::RecorderCostModel model(costs);
  if (!model.known()) return out;
  const std::vector<int64_t> once_ns = replay.without_recorder(model);
  for (size_t i = 0; i < out.steps.size(); ++i) out.steps[i].undisturbed_ns = out.steps[i].by_machine_ns = once_ns[i];

  const std::vector<StageRuns> runs =
      stage_runs(trace, step_recordings(trace, CuptiAway(trace)), replays(trace, out.steps), host_pace);
  if (std::none_of(runs.begin(), runs.end(), [](const StageRuns& stage) { return stage.runs.size() > 1; })) return out;
  const std::vector<int64_t> twice_ns = replay.without_recorder(replay::RecorderCostModel(costs, 2));
  std::vector<double> once = window_lengths(trace), twice = once;
  for (size_t i = 0; i < out.steps.size(); ++i) {
    once[out.steps[i].step] = static_cast<double>(once_ns[i]);
    twice[out.steps[i].step] = static_cast<double>(twice_ns[i]);
  }
  out.calls = calls_factor(runs, once, twice);
  if (out.calls.changes == 0) return out;
  const std::vector<int64_t> here_ns = replay.without_recorder(replay::RecorderCostModel(costs, out.calls.factor));
  for (size_t i = 0; i < out.steps.size(); ++i) out.steps[i].undisturbed_ns = here_ns[i];
  return out;
}

// By so much of what was measured on the machine the cost of calls differs in a program of its own, at the full pace of
// its CPU: 1.07 and 1.87 us a launch in two runs of one program where 1.23 and 1.4 were measured (docs/results,
// notes-recording.md).
constexpr double kCallsUnsure = 0.4;

UndisturbedTimes::UndisturbedTimes(const Trace& trace, const Groups& groups, const ReplayedSteps& replayed,
                                   const RecorderCosts& costs, const HostPace& host_pace) {
  const Steps& steps = trace.steps;
  window_ns_ = window_lengths(trace);
  unsure_ns_.assign(steps.size(), 0);
  sources_.assign(steps.size(), StepTimeSource::kRecorded);
  if (!is_live_recording(trace)) return;

  const CuptiAway away(trace);
  std::vector<double> by_machine_ns = window_ns_;
  for (const replay::StepTime& time : replayed.steps) {
    if (!time.undisturbed_ns || !replays_step(time)) continue;
    window_ns_[time.step] = static_cast<double>(*time.undisturbed_ns);
    by_machine_ns[time.step] = static_cast<double>(time.by_machine_ns.value_or(*time.undisturbed_ns));
    sources_[time.step] = StepTimeSource::kReplayed;
  }
  std::map<std::tuple<int32_t, StringId>, StageTimesOf> stages;
  const std::vector<StepRecording> recordings = step_recordings(trace, away);
  const std::set<std::tuple<int32_t, StringId>> by_ranges = known_by_ranges(steps, recordings);
  for (const StageRuns& runs : stage_runs(trace, recordings, replays(trace, replayed.steps), host_pace))
    stages[{runs.device, runs.stage}].disagreement = disagreement(runs, by_machine_ns);
  for (Row s = 0; s < steps.size(); ++s) {
    const bool alone = away.throughout(steps.start_ns[s], steps.end_ns[s]);
    StageTimesOf& times = stages[{steps.device[s], steps.stage[s]}];
    const bool goes_on = steps.annotation[s] != kNoRow && steps.annotation[s] == times.range &&
                         by_ranges.count({steps.device[s], steps.stage[s]}) > 0;
    switch (recordings[s]) {
      case StepRecording::kNeither:
        if (steps.missing[s] == MissingKernels::kAll) window_ns_[s] = -1;
        continue;
      case StepRecording::kHostOnly:  // no call of it costs more
        sources_[s] = alone ? StepTimeSource::kUnrecorded : StepTimeSource::kReplayed;
        continue;
      case StepRecording::kAttached:
        window_ns_[s] = -1;
        continue;
      case StepRecording::kAlone:
        sources_[s] = StepTimeSource::kUnrecorded;
        add_time(window_ns_[s], goes_on, times.unrecorded);
        break;
      case StepRecording::kRecorded:
        add_time(static_cast<double>(steps.end_ns[s] - steps.start_ns[s]), goes_on, times.recorded);
        if (sources_[s] == StepTimeSource::kReplayed) add_time(window_ns_[s], goes_on, times.replayed);
        break;
    }
    times.range = steps.annotation[s];
    times.steps.push_back(s);
  }
  for (Row op = 0; op < trace.gpu_ops.size(); ++op) {
    const StepId step = trace.gpu_links.step[op];
    if (step == kNoRow || trace.gpu_ops.kind[op] != GpuOpKind::kKernel) continue;
    StageTimesOf& times = stages[{steps.device[step], steps.stage[step]}];
    ++(trace.gpu_ops.graph_node[op] != 0 ? times.graph_nodes : times.kernels);
  }
  const replay::RecorderCostModel model(costs);
  std::vector<std::tuple<int32_t, StringId>> done;
  for (const StageGroup& group : groups.stages) {
    const auto found = stages.find({group.device, group.name});
    if (group.unattributed || found == stages.end() || found->second.steps.empty()) continue;
    if (std::find(done.begin(), done.end(), found->first) != done.end()) continue;
    done.push_back(found->first);
    const bool graphs = found->second.graph_nodes > found->second.kernels;
    const bool fitted = replayed.calls.changes > 0 && !graphs;
    const double unsure_frac = fitted   ? replayed.calls.error / std::max(replayed.calls.factor, 0.1)
                               : graphs ? model.unsure_frac(graphs)
                                        : std::max(model.unsure_frac(graphs), kCallsUnsure);
    UndisturbedRecord row = record_of(found->second, unsure_frac);
    for (const StepId step : found->second.steps)
      if (sources_[step] == StepTimeSource::kReplayed && recordings[step] == StepRecording::kRecorded)
        unsure_ns_[step] = unsure_of(found->second, unsure_frac,
                                     static_cast<double>(steps.end_ns[step] - steps.start_ns[step]) - window_ns_[step]);
    row.stage = trace.text(group.name);
    row.device = group.device;
    // What is recorded and cannot be replayed is scaled like its stage.
    if (row.source == StepTimeSource::kUnrecorded && row.recorded_ms && row.unrecorded_ms)
      for (const StepId step : found->second.steps)
        if (sources_[step] == StepTimeSource::kRecorded) window_ns_[step] *= *row.unrecorded_ms / *row.recorded_ms;
    rows_.push_back(std::move(row));
  }
}

std::optional<double> UndisturbedTimes::window_ns(StepId step) const {
  return window_ns_[step] < 0 ? std::nullopt : std::optional(window_ns_[step]);
}

double recorder_cost_ns(const StageGroup& group, const StageTiming& timing) {
  if (!timing.own_ms) return 0;
  const int64_t recorded_ns = group.wall_ns - group.not_recorded_ns - group.idle_of(IdleCause::kProfiler);
  return std::max(0.0, static_cast<double>(recorded_ns) - *timing.own_ms * 1e6);
}

}  // namespace llmprof
