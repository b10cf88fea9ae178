#include "analyze/recording_changes.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <span>
#include <tuple>

#include "base/statistics.h"

namespace llmprof {
namespace {

constexpr size_t kNearMost = 10, kNearLeast = 3;  // times to either side of a change that are compared
constexpr double kReplaysWithin = 0.05;
// Programs on two machines cost 0.76 to 2.2 times what was measured there (docs/results/notes-recording.md).
constexpr double kFactorSpread = 0.5;
constexpr double kFactorLeast = 0, kFactorMost = 4;
constexpr double kGainLeast = 0.01;  // of a step: one that hardly waits for calls says nothing of what they cost
constexpr double kPaceLeast = 0.01;  // by which two stretches of equal steps differ at least
constexpr double kPaceUsual = 0.03;  // the same where there are too few to say
constexpr size_t kPacesLeast = 4;

using StepLists = std::span<const std::vector<StepId>>;

std::vector<double> values_of(StepLists times, const std::vector<double>& ns) {
  std::vector<double> out;
  for (const std::vector<StepId>& steps : times) {
    double sum = 0;
    for (const StepId step : steps) sum += ns[step];
    out.push_back(sum);
  }
  return out;
}

// The standard error of a median, by the median distance from it as of a normal distribution.
double error_of_median(const std::vector<double>& values) {
  const double middle = median_of(values);
  std::vector<double> off;
  for (const double value : values) off.push_back(std::fabs(value - middle));
  return 1.2533 * 1.4826 * median_of(std::move(off)) / std::sqrt(static_cast<double>(values.size()));
}

struct Sides {
  StepLists recorded, unrecorded;  // next to the change
};

// The changes of a stage that have enough times to either side.
std::vector<Sides> changes_of(const StageRuns& stage) {
  std::vector<Sides> out;
  for (size_t i = 1; i < stage.runs.size(); ++i) {
    const StepRun &before = stage.runs[i - 1], &behind = stage.runs[i];
    if (before.times.size() < kNearLeast || behind.times.size() < kNearLeast) continue;
    const StepLists last = StepLists(before.times).last(std::min(before.times.size(), kNearMost));
    const StepLists first = StepLists(behind.times).first(std::min(behind.times.size(), kNearMost));
    out.push_back(behind.recorded ? Sides{first, last} : Sides{last, first});
  }
  return out;
}

// By how much of themselves the medians of two stretches of steps differ that follow one another and were recorded
// alike.
double pace_frac(const std::vector<StageRuns>& stages, const std::vector<double>& ns) {
  std::vector<double> changes;
  for (const StageRuns& stage : stages)
    for (const StepRun& run : stage.runs) {
      double before = 0;
      for (size_t at = 0; at + kNearLeast <= run.times.size(); at += kNearMost) {
        const StepLists part = StepLists(run.times).subspan(at, std::min(kNearMost, run.times.size() - at));
        const double median = median_of(values_of(part, ns));
        if (before > 0) changes.push_back(std::fabs(std::log(median / before)));
        before = median;
      }
    }
  if (changes.size() < kPacesLeast) return kPaceUsual;
  return std::max(kPaceLeast, median_of(std::move(changes)) / 0.6745);
}

}  // namespace

bool replays_step(const replay::StepTime& time) { return std::fabs(time.error_frac()) <= kReplaysWithin; }

std::vector<StageRuns> stage_runs(const Trace& trace, const std::vector<StepRecording>& recordings,
                                  const std::vector<uint8_t>& replays, const HostPace& host_pace) {
  const Steps& steps = trace.steps;
  const StepsAtPace chosen(trace, recordings, host_pace);
  std::map<std::tuple<int32_t, StringId>, StageRuns> found;
  std::map<std::tuple<int32_t, StringId>, AnnotationId> ranges;
  for (Row step = 0; step < steps.size(); ++step) {
    const bool recorded = recordings[step] == StepRecording::kRecorded;
    if (recorded ? replays[step] == 0 : recordings[step] != StepRecording::kAlone) continue;
    if (!chosen.has(step)) continue;
    const std::tuple<int32_t, StringId> key{steps.device[step], steps.stage[step]};
    StageRuns& stage = found[key];
    stage.device = steps.device[step], stage.stage = steps.stage[step];
    if (stage.runs.empty() || stage.runs.back().recorded != recorded) stage.runs.push_back({recorded, {}});
    AnnotationId& range = ranges.try_emplace(key, kNoRow).first->second;
    const bool goes_on = steps.annotation[step] != kNoRow && steps.annotation[step] == range;
    range = steps.annotation[step];
    std::vector<std::vector<StepId>>& times = stage.runs.back().times;
    if (!goes_on || times.empty()) times.emplace_back();
    times.back().push_back(step);
  }
  std::vector<StageRuns> out;
  for (auto& [key, stage] : found) out.push_back(std::move(stage));
  return out;
}

std::optional<double> disagreement(const StageRuns& stage, const std::vector<double>& without_ns) {
  std::vector<double> ratios;
  for (const Sides& sides : changes_of(stage))
    ratios.push_back(median_of(values_of(sides.recorded, without_ns)) /
                     median_of(values_of(sides.unrecorded, without_ns)));
  if (ratios.empty()) return std::nullopt;
  return median_of(std::move(ratios)) - 1;
}

CallsFactor calls_factor(const std::vector<StageRuns>& stages, const std::vector<double>& once_ns,
                         const std::vector<double>& twice_ns) {
  const double pace = pace_frac(stages, once_ns);
  CallsFactor found;
  double weights = 1 / (kFactorSpread * kFactorSpread), sum = weights;
  for (const StageRuns& stage : stages)
    for (const Sides& sides : changes_of(stage)) {
      const std::vector<double> once = values_of(sides.recorded, once_ns);
      const std::vector<double> alone = values_of(sides.unrecorded, once_ns);
      const double replayed = median_of(once), unrecorded = median_of(alone);
      const double gain = replayed - median_of(values_of(sides.recorded, twice_ns));
      if (gain < kGainLeast * replayed) continue;
      const double error = std::hypot(error_of_median(once), error_of_median(alone), pace * unrecorded) / gain;
      const double weight = 1 / (error * error);
      sum += weight * (1 + (replayed - unrecorded) / gain);
      weights += weight;
      ++found.changes;
    }
  found.error = found.changes > 0 ? 1 / std::sqrt(weights) : 0;
  found.factor = std::clamp(sum / weights, kFactorLeast, kFactorMost);
  return found;
}

}  // namespace llmprof
