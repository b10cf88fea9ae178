#include "analyze/undisturbed.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "analyze/step_recording.h"
#include "base/statistics.h"
#include "replay/undisturbed.h"

namespace llmprof {
namespace {

constexpr size_t kUnrecordedMin = 5;              // steps whose median stands for a stage
constexpr size_t kNearMost = 10, kNearLeast = 3;  // steps to either side of a change that are compared
constexpr double kReplaysWithin = 0.05;  // a step that replay does not give back says nothing of the step without cost

// Of ranges that hold several steps (an encoder, and the prompt behind it), those of one range are one time: where
// nothing was recorded nobody can part them.
struct StageTimesOf {
  std::vector<double> recorded, replayed, unrecorded;  // ns
  AnnotationId range = kNoRow;                         // of the latest recorded step
  std::vector<StepId> steps;                           // all of them
  int64_t graph_nodes = 0, kernels = 0;                // of the recorded ones
  // In order of time, replayed and unrecorded ones by turns, ns.
  struct Run {
    bool is_replayed;
    std::vector<double> ns;
  };
  std::vector<Run> runs;
};

void add_time(double ns, bool goes_on, std::vector<double>& times) {
  if (goes_on && !times.empty())
    times.back() += ns;
  else
    times.push_back(ns);
}

void add_to_run(double ns, bool is_replayed, bool goes_on, std::vector<StageTimesOf::Run>& runs) {
  if (runs.empty() || runs.back().is_replayed != is_replayed) runs.push_back({is_replayed, {}});
  add_time(ns, goes_on, runs.back().ns);
}

// Replayed over unrecorded steps next to them: over a whole run a program becomes faster, or its context longer.
OptDouble agreement(const std::vector<StageTimesOf::Run>& runs) {
  std::vector<double> ratios;
  for (size_t i = 1; i < runs.size(); ++i) {
    const std::vector<double>&before = runs[i - 1].ns, &behind = runs[i].ns;
    if (before.size() < kNearLeast || behind.size() < kNearLeast) continue;
    const auto last = static_cast<std::ptrdiff_t>(std::min(before.size(), kNearMost)),
               first = static_cast<std::ptrdiff_t>(std::min(behind.size(), kNearMost));
    const double earlier = median_of({before.end() - last, before.end()}),
                 later = median_of({behind.begin(), behind.begin() + first});
    ratios.push_back(runs[i].is_replayed ? later / earlier : earlier / later);
  }
  return ratios.empty() ? OptDouble() : median_of(std::move(ratios));
}

// The interval of a median, wider by what is not known of the costs that were taken out.
Interval interval_of(const std::vector<double>& values, double unsure_ns) {
  Interval interval = bootstrap_median(values);
  interval.low -= unsure_ns;
  interval.high += unsure_ns;
  return interval;
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
  if (const OptDouble ratio = agreement(times.runs)) row.agree_frac = *ratio - 1;
  const std::vector<double>* chosen = &times.recorded;
  double unsure_ns = 0;
  if (times.unrecorded.size() >= kUnrecordedMin || (times.replayed.empty() && times.recorded.empty())) {
    row.source = StepTimeSource::kUnrecorded;
    chosen = &times.unrecorded;
  } else if (!times.replayed.empty()) {
    row.source = StepTimeSource::kReplayed;
    chosen = &times.replayed;
    unsure_ns =
        unsure_frac * std::fabs(*row.recorded_ms - *row.replayed_ms) * 1e6 +
        replay::kNodeUnsureNs * static_cast<double>(times.graph_nodes) / static_cast<double>(times.recorded.size());
  } else {
    row.source = StepTimeSource::kRecorded;
  }
  row.step_ms = median_of(*chosen) / 1e6;
  const Interval interval = interval_of(*chosen, unsure_ns);
  row.ci95_low_ms = interval.low / 1e6;
  row.ci95_high_ms = interval.high / 1e6;
  return row;
}

}  // namespace

UndisturbedTimes::UndisturbedTimes(const Trace& trace, const Groups& groups,
                                   const std::vector<replay::StepTime>& replayed, const RecorderCosts& costs) {
  const Steps& steps = trace.steps;
  window_ns_.resize(steps.size());
  sources_.assign(steps.size(), StepTimeSource::kRecorded);
  for (Row s = 0; s < steps.size(); ++s) window_ns_[s] = static_cast<double>(steps.end_ns[s] - steps.start_ns[s]);
  if (!is_live_recording(trace)) return;

  const CuptiAway away(trace);
  for (const replay::StepTime& time : replayed) {
    if (!time.undisturbed_ns || std::fabs(time.error_frac()) > kReplaysWithin) continue;
    window_ns_[time.step] = static_cast<double>(*time.undisturbed_ns);
    sources_[time.step] = StepTimeSource::kReplayed;
  }
  std::map<std::tuple<int32_t, StringId>, StageTimesOf> stages;
  const std::vector<StepRecording> recordings = step_recordings(trace, away);
  for (Row s = 0; s < steps.size(); ++s) {
    const bool alone = away.throughout(steps.start_ns[s], steps.end_ns[s]);
    StageTimesOf& times = stages[{steps.device[s], steps.stage[s]}];
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
        times.unrecorded.push_back(window_ns_[s]);
        add_to_run(window_ns_[s], false, false, times.runs);
        break;
      case StepRecording::kRecorded: {
        const bool goes_on = steps.annotation[s] != kNoRow && steps.annotation[s] == times.range;
        times.range = steps.annotation[s];
        add_time(static_cast<double>(steps.end_ns[s] - steps.start_ns[s]), goes_on, times.recorded);
        if (sources_[s] != StepTimeSource::kReplayed) break;
        add_time(window_ns_[s], goes_on, times.replayed);
        add_to_run(window_ns_[s], true, goes_on, times.runs);
        break;
      }
    }
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
    UndisturbedRecord row = record_of(found->second, model.unsure_frac(graphs));
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
