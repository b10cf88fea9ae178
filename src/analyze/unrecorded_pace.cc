#include "analyze/unrecorded_pace.h"

#include <cmath>
#include <map>
#include <optional>
#include <vector>

#include "base/statistics.h"

namespace llmprof {
namespace {

constexpr size_t kStepsMin = 5;    // whose median stands for a stage
constexpr double kSame = 0.01;     // off by less is the spread of medians
constexpr double kOneTime = 0.03;  // of a median: the table's is of the same steps
constexpr double kLeast = 0.3, kMost = 1.3;
constexpr int kRounds = 8;  // halve the interval: a 250th of it is left

struct FittedStage {
  double wanted_ns = 0;
  std::vector<size_t> places;  // of its steps among all replayed ones
  double low = kLeast, high = kMost;
  double factor = 1;

  double median_in(const std::vector<int64_t>& windows) const {
    std::vector<double> own;
    for (const size_t at : places) own.push_back(static_cast<double>(windows[at]));
    return median_of(std::move(own));
  }
};

// By row of Groups::stages.
std::map<uint32_t, FittedStage> stages_to_fit(const Context& context, const std::vector<int64_t>& windows) {
  std::map<uint32_t, FittedStage> out;
  const std::vector<StageGroup>& groups = context.groups.stages;
  for (const UndisturbedRecord& row : context.undisturbed.rows()) {
    if (!row.unrecorded_ms || !row.replayed_ms || row.unrecorded_steps < static_cast<int64_t>(kStepsMin)) continue;
    for (uint32_t s = 0; s < groups.size(); ++s)
      if (groups[s].device == row.device && !groups[s].unattributed && !groups[s].is_warm_up() &&
          groups[s].missing == MissingKernels::kNone && context.trace.text(groups[s].name) == row.stage)
        out[s].wanted_ns = *row.unrecorded_ms * 1e6;
  }
  for (size_t at = 0; at < context.replayed.steps.size(); ++at) {
    const replay::StepTime& time = context.replayed.steps[at];
    const auto stage = out.find(context.groups.stage_of_step[time.step]);
    if (stage != out.end() && replays_step(time)) stage->second.places.push_back(at);
  }
  std::erase_if(out, [&](const auto& entry) {
    const FittedStage& stage = entry.second;
    if (stage.places.size() < kStepsMin) return true;
    const double now_ns = stage.median_in(windows);
    for (const UndisturbedRecord& row : context.undisturbed.rows())
      if (row.device == groups[entry.first].device && context.trace.text(groups[entry.first].name) == row.stage &&
          std::fabs(now_ns / 1e6 - *row.replayed_ms) > kOneTime * *row.replayed_ms)
        return true;  // of several steps together
    return std::fabs(now_ns - stage.wanted_ns) <= kSame * stage.wanted_ns;
  });
  return out;
}

// `factor(step)`: of its host code and of its calls that do not wait.
template <class Factor>
void scale_host(const Context& context, const replay::Recording& recording, const Factor& factor,
                replay::Durations& durations) {
  for (ApiCallId call = 0; call < context.trace.api_calls.size(); ++call) {
    const StepId step = recording.step_of(call);
    if (step == kNoRow) continue;
    const double by = factor(step);
    if (by == 1) continue;
    const auto scaled = [&](int64_t ns) { return std::llround(static_cast<double>(ns) * by); };
    durations.before_ns[call] = scaled(durations.before_ns[call]);
    if (!recording.waits(call)) durations.call_ns[call] = scaled(durations.call_ns[call]);
  }
}

void scale(const Context& context, const replay::Recording& recording, const std::map<uint32_t, FittedStage>& stages,
           replay::Durations& durations) {
  scale_host(
      context, recording,
      [&](StepId step) {
        const auto stage = stages.find(context.groups.stage_of_step[step]);
        return stage == stages.end() ? 1.0 : stage->second.factor;
      },
      durations);
}

}  // namespace

void fit_to_unrecorded(const Context& context, const replay::StepReplay& replay, const replay::Recording& recording,
                       const replay::Latencies& latencies, replay::Durations& durations) {
  std::map<uint32_t, FittedStage> stages = stages_to_fit(context, replay.windows(durations, latencies));
  if (stages.empty()) return;
  for (int round = 0; round < kRounds; ++round) {
    for (auto& [s, stage] : stages) stage.factor = (stage.low + stage.high) / 2;
    replay::Durations tried = durations;
    scale(context, recording, stages, tried);
    const std::vector<int64_t> windows = replay.windows(tried, latencies);
    for (auto& [s, stage] : stages)
      (stage.median_in(windows) > stage.wanted_ns ? stage.high : stage.low) = stage.factor;
  }
  scale(context, recording, stages, durations);
}

bool put_at_full_pace(const Context& context, const replay::Recording& recording, replay::Durations& durations) {
  const Steps& steps = context.trace.steps;
  std::vector<double> factors(steps.size(), 1.0);
  bool slow = false;
  for (StepId step = 0; step < steps.size(); ++step) {
    if (context.host_pace.full(steps, step)) continue;
    const std::optional<double> pace =
        context.host_pace.during(steps.device[step], steps.host_start_ns[step], steps.end_ns[step]);
    if (!pace || *pace >= 1) continue;
    factors[step] = *pace;
    slow = true;
  }
  if (slow)
    scale_host(
        context, recording, [&](StepId step) { return factors[step]; }, durations);
  return slow;
}

}  // namespace llmprof
