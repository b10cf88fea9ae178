#include "analyze/step_recording.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "analyze/undisturbed.h"
#include "derive/host_pace.h"

namespace llmprof {

CuptiAway::CuptiAway(const Trace& trace) {
  const Recorded& recorded = trace.recorded;
  for (Row row = 0; row < recorded.size(); ++row) {
    never_came_ &= recorded.level[row] < RecordingLevel::kDefault;
    if (trace.text(recorded.reason[row]) == "detached")
      spans_.push_back({recorded.start_ns[row], recorded.start_ns[row] + recorded.dur_ns[row]});
  }
  std::sort(spans_.begin(), spans_.end(), [](const TimeSpan& a, const TimeSpan& b) { return a.start_ns < b.start_ns; });
}

std::vector<StepRecording> step_recordings(const Trace& trace, const CuptiAway& away) {
  const Steps& steps = trace.steps;
  std::vector<uint8_t> on_gpu(steps.size(), 0);
  for (const StepId step : trace.gpu_links.step)
    if (step != kNoRow) on_gpu[step] = 1;
  const bool gpu_work = !trace.gpu_ops.empty();
  std::vector<StepRecording> out(steps.size(), StepRecording::kNeither);
  std::map<int32_t, StepId> previous;
  for (Row s = 0; s < steps.size(); ++s) {
    const MissingKernels missing = steps.missing[s];
    const bool host_only = gpu_work && missing == MissingKernels::kNone && on_gpu[s] == 0;
    if (host_only && steps.phase[s] != StepPhase::kWarmUp) out[s] = StepRecording::kHostOnly;
    if (host_only) continue;
    const auto [before, first] = previous.try_emplace(steps.device[s], StepId(s));
    // A window begins where the step before it ended, so that one must have been recorded alike.
    const bool alike = first || steps.missing[before->second] == missing;
    before->second = s;
    if (!alike || steps.phase[s] == StepPhase::kWarmUp || steps.state[s] == StepState::kWindowEdge) continue;
    if (missing == MissingKernels::kNone) out[s] = StepRecording::kRecorded;
    if (missing == MissingKernels::kAll)
      out[s] = away.throughout(steps.start_ns[s], steps.end_ns[s]) ? StepRecording::kAlone : StepRecording::kAttached;
  }
  return out;
}

StepsAtPace::StepsAtPace(const Trace& trace, const std::vector<StepRecording>& recordings, const HostPace& host_pace)
    : has_(trace.steps.size(), 1) {
  constexpr size_t kEnough = 5;
  if (host_pace.probed().empty()) return;
  const Steps& steps = trace.steps;
  struct AtFullPace {
    size_t recorded = 0, alone = 0;
  };
  std::map<std::tuple<int32_t, StringId>, AtFullPace> stages;
  std::vector<uint8_t> full(steps.size(), 0);
  for (Row s = 0; s < steps.size(); ++s) {
    full[s] = host_pace.full(steps, s) ? 1 : 0;
    AtFullPace& stage = stages[{steps.device[s], steps.stage[s]}];
    stage.recorded += full[s] != 0 && recordings[s] == StepRecording::kRecorded ? 1 : 0;
    stage.alone += full[s] != 0 && recordings[s] == StepRecording::kAlone ? 1 : 0;
  }
  for (Row s = 0; s < steps.size(); ++s) {
    const AtFullPace& stage = stages[{steps.device[s], steps.stage[s]}];
    if (stage.recorded >= kEnough && stage.alone >= kEnough) has_[s] = full[s];
  }
}

std::vector<StepRecord> list_steps(const Trace& trace, const UndisturbedTimes& undisturbed, const HostPace& host_pace) {
  constexpr size_t kMost = 20'000;
  const Steps& steps = trace.steps;
  const CuptiAway away(trace);
  const bool live = is_live_recording(trace);
  const auto how = [&](Row s) {
    if (steps.state[s] == StepState::kWindowEdge) return "edge";
    if (steps.missing[s] == MissingKernels::kNone) return "recorded";
    if (steps.missing[s] == MissingKernels::kGraphNodes) return "whole-graphs";
    return away.throughout(steps.start_ns[s], steps.end_ns[s]) ? "unrecorded" : "attached";
  };
  std::vector<StepRecord> rows(std::min(kMost, steps.size()));
  for (Row s = 0; s < rows.size(); ++s) {
    StepRecord& row = rows[s];
    row.stage = trace.text(steps.stage[s]);
    row.device = steps.device[s];
    row.start_unix_ns = trace.base_unix_ns + steps.start_ns[s];
    row.duration_ns = steps.end_ns[s] - steps.start_ns[s];
    row.recording = how(s);
    row.warm_up = steps.phase[s] == StepPhase::kWarmUp;
    row.host_pace_frac = host_pace.during(steps.device[s], steps.host_start_ns[s], steps.end_ns[s]);
    if (!live) continue;
    if (const std::optional<double> ns = undisturbed.window_ns(s)) row.undisturbed_ms = *ns / 1e6;
  }
  return rows;
}

}  // namespace llmprof
