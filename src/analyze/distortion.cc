// What recording did to the program: step times with kernels recorded against step times without, within one run or
// against a second one in light mode. Recorders that leave neither get no figure.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <map>

#include "analyze/analysis.h"
#include "analyze/processor.h"
#include "analyze/step_recording.h"
#include "base/statistics.h"
#include "derive/host_calls.h"
#include "derive/recorded_spans.h"
#include "derive/steps.h"

namespace llmprof {
namespace {

constexpr size_t kStepsMin = 5;               // on either side; the median of fewer says little
constexpr size_t kStepsMax = 4000;            // more are thinned out evenly before resampling
constexpr uint64_t kSeed = 0x6c6c6d70726f66;  // fixed: the same recording gives the same interval
constexpr double kWaitsMin = 0.5;             // share of steps in which the host waits for the GPU
constexpr double kEqualNeighbours = 0.8;      // times that were divided evenly, not observed one by one

std::vector<double> thinned(const std::vector<double>& values) {
  if (values.size() <= kStepsMax) return values;
  std::vector<double> out;
  out.reserve(kStepsMax);
  for (size_t i = 0; i < kStepsMax; ++i) out.push_back(values[i * values.size() / kStepsMax]);
  return out;
}

// Share of the steps of a stage after which the host waited for the GPU.
double waits_frac(const Trace& trace, std::string_view stage) {
  int64_t steps = 0, waits = 0;
  for (Row s = 0; s < trace.steps.size(); ++s) {
    if (trace.steps.missing[s] != MissingKernels::kNone || trace.steps.phase[s] == StepPhase::kWarmUp) continue;
    if (trace.text(trace.steps.stage[s]) != stage) continue;
    ++steps;
    waits += trace.steps.sync_ns[s] >= 0;
  }
  return steps > 0 ? static_cast<double>(waits) / static_cast<double>(steps) : 0;
}

// Host ranges are step times only if the host waits in every step, or if the time of a whole loop was divided.
bool divided_evenly(const std::vector<double>& times_ns) {
  size_t equal = 0;
  for (size_t i = 1; i < times_ns.size(); ++i) equal += std::fabs(times_ns[i] - times_ns[i - 1]) <= 1;
  return times_ns.size() > 1 &&
         static_cast<double>(equal) >= kEqualNeighbours * static_cast<double>(times_ns.size() - 1);
}

// A run of the program changes its pace for reasons of its own, on some hosts by half for seconds. So steps are
// compared that lie next to each other: at each change from recording to none or back as many from either side,
// kNearMost at most, and of a stretch between two changes half for each.
struct NearChanges {
  std::vector<double> recorded_ns, unrecorded_ns;
};
constexpr size_t kNearMost = 20;

NearChanges near_changes(const std::vector<TimedStep>& steps) {
  std::vector<std::pair<size_t, size_t>> stretches;  // recorded alike
  for (size_t i = 0; i < steps.size(); ++i) {
    if (i == 0 || steps[i].recorded != steps[i - 1].recorded) stretches.emplace_back(i, i);
    stretches.back().second = i + 1;
  }
  NearChanges out;
  const auto part = [&](size_t at, bool has_other_change) {
    const size_t length = stretches[at].second - stretches[at].first;
    return std::min(kNearMost, has_other_change ? (length + 1) / 2 : length);
  };
  const auto add = [&](size_t step) {
    (steps[step].recorded ? out.recorded_ns : out.unrecorded_ns).push_back(steps[step].ns);
  };
  for (size_t at = 1; at < stretches.size(); ++at) {
    const size_t count = std::min(part(at - 1, at > 1), part(at, at + 1 < stretches.size()));
    for (size_t i = 0; i < count; ++i) {
      add(stretches[at - 1].second - 1 - i);
      add(stretches[at].first + i);
    }
  }
  return out;
}

struct Found {
  std::vector<DistortionRecord> rows;
  std::string reason;  // where rows is empty
};

void add_row(const std::string& stage, DistortionMethod method, const std::vector<double>& recorded_ns,
             const std::vector<double>& unrecorded_ns, Found& found) {
  std::optional<DistortionRecord> row = compare_step_times(recorded_ns, unrecorded_ns);
  if (!row) {
    found.reason = fmt::format("stage {} has {} steps with and {} without recording; {} of each are needed", stage,
                               recorded_ns.size(), unrecorded_ns.size(), kStepsMin);
    return;
  }
  row->stage = stage;
  row->method = method;
  found.rows.push_back(std::move(*row));
}

Found against_baseline(const Trace& trace, const HostPace& host_pace, const Trace& baseline) {
  Found found;
  const std::vector<StageTimes> theirs = stage_times(baseline, HostPace(baseline));
  found.reason = "the baseline has no step of the same name as this run";
  for (const StageTimes& mine : stage_times(trace, host_pace)) {
    const std::vector<StageTimes>::const_iterator other =
        std::find_if(theirs.begin(), theirs.end(), [&](const StageTimes& t) { return t.stage == mine.stage; });
    if (other == theirs.end()) continue;
    const std::vector<double> recorded = times_ns(other->steps, true);
    const bool host_times = recorded.size() < kStepsMin;
    const std::vector<double> plain = host_times ? times_ns(other->steps, false) : recorded;
    if (host_times && waits_frac(trace, mine.stage) < kWaitsMin && !divided_evenly(plain)) {
      found.reason = "the host runs ahead of the GPU, so that the ranges of the baseline do not give its step times";
      continue;
    }
    add_row(mine.stage, DistortionMethod::kBaseline, times_ns(mine.steps, true), plain, found);
  }
  return found;
}

// From when on steps are compared. Recorded ones only from where recording was resumed after its first pause: before it
// lies the warm-up of the program, which has no counterpart without recording and would count as its cost.
struct ComparedFrom {
  int64_t recorded_ns = std::numeric_limits<int64_t>::min();
  int64_t unrecorded_ns = std::numeric_limits<int64_t>::min();
};
constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

ComparedFrom compared_from(const Trace& trace) {
  const Recorded& recorded = trace.recorded;
  const auto is_on = [&](Row row) { return recorded.level[row] >= RecordingLevel::kDefault; };
  ComparedFrom from{kNever, kNever};
  int64_t first_on = kNever;
  for (Row row = 0; row < recorded.size(); ++row)
    if (is_on(row)) first_on = std::min(first_on, recorded.start_ns[row]);
  for (Row row = 0; row < recorded.size(); ++row)
    if (!is_on(row) && recorded.start_ns[row] > first_on)
      from.unrecorded_ns = std::min(from.unrecorded_ns, recorded.start_ns[row]);
  for (Row row = 0; row < recorded.size(); ++row)
    if (is_on(row) && recorded.start_ns[row] >= from.unrecorded_ns)
      from.recorded_ns = std::min(from.recorded_ns, recorded.start_ns[row]);
  return from;
}

DistortionMethod method_of(const CuptiAway& away) {
  return away.ever() ? DistortionMethod::kWithinRun : DistortionMethod::kWithinRunAttached;
}

Found within_run(const Trace& trace, const HostPace& host_pace) {
  Found found;
  found.reason = "everything was recorded: no window without recording lies in the run";
  bool unrecorded = false;
  for (const RecordingLevel level : trace.recorded.level) unrecorded |= level < RecordingLevel::kDefault;
  if (!unrecorded) return found;
  if (std::none_of(trace.recorded.level.begin(), trace.recorded.level.end(),
                   [](RecordingLevel level) { return level >= RecordingLevel::kDefault; })) {
    found.reason = "kernels were recorded in no window, so that there is nothing to compare";
    return found;
  }
  found.reason = "no step lies in the windows without recording";
  const DistortionMethod method = method_of(CuptiAway(trace));
  for (const StageTimes& times : stage_times(trace, host_pace)) {
    if (times_ns(times.steps, false).empty()) continue;
    const NearChanges near = near_changes(times.steps);
    add_row(times.stage, method, near.recorded_ns, near.unrecorded_ns, found);
  }
  return found;
}

struct CallIntervals {
  std::vector<TimedStep> steps;
  size_t waits = 0;  // recorded intervals in which the host waited for the GPU

  size_t recorded() const {
    return static_cast<size_t>(
        std::count_if(steps.begin(), steps.end(), [](const TimedStep& s) { return s.recorded; }));
  }
};

std::map<std::pair<Row, uint64_t>, CallIntervals> call_intervals(const Trace& trace) {
  const RecurringCalls& seen = trace.recurring_calls;
  const RecordedSpans recorded(trace);
  const HostCalls calls(trace);
  std::vector<Row> order(seen.size());
  for (Row i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](Row a, Row b) { return seen.time_ns[a] < seen.time_ns[b]; });
  std::map<std::pair<Row, uint64_t>, int64_t> last;
  std::map<std::pair<Row, uint64_t>, CallIntervals> out;
  const ComparedFrom compared = compared_from(trace);
  const CuptiAway away(trace);
  for (const Row row : order) {
    const ThreadId thread = seen.thread[row];
    if (thread >= trace.threads.size()) continue;
    const std::pair<Row, uint64_t> key{thread, seen.key[row]};
    const int64_t to = seen.time_ns[row];
    const auto known = last.find(key);
    const int64_t from = known != last.end() ? known->second : to;
    last[key] = to;
    if (from >= to) continue;
    const std::vector<TimeSpan>& spans = recorded.unrecorded_process(trace.threads.process_id[thread]);
    CallIntervals& intervals = out[key];
    if (!RecordedSpans::touches(spans, from, to)) {
      if (from < compared.recorded_ns) continue;
      intervals.steps.push_back({true, static_cast<double>(to - from)});
      intervals.waits += calls.first_blocking(thread, from, to) != nullptr;
    } else if (std::any_of(spans.begin(), spans.end(),
                           [&](const TimeSpan& span) { return span.start_ns <= from && to <= span.end_ns; })) {
      if (from < compared.unrecorded_ns || (away.ever() && !away.throughout(from, to))) continue;
      intervals.steps.push_back({false, static_cast<double>(to - from)});
    }
  }
  return out;
}

// Steps without names: the distances of host events that recur every step.
Found by_recurring_calls(const Trace& trace) {
  Found found;
  found.reason = "no recurring host event was seen often enough with and without recording";
  const std::map<std::pair<Row, uint64_t>, CallIntervals> all = call_intervals(trace);
  const CallIntervals* best = nullptr;
  const auto pairs = [](const CallIntervals& i) { return std::min(i.recorded(), i.steps.size() - i.recorded()); };
  for (const auto& [key, intervals] : all) {
    if (best == nullptr || pairs(intervals) > pairs(*best)) best = &intervals;
  }
  if (best == nullptr || pairs(*best) < kStepsMin) return found;
  if (static_cast<double>(best->waits) < kWaitsMin * static_cast<double>(best->recorded())) {
    found.reason = "the host runs ahead of the GPU, so that host events do not give step times";
    return found;
  }
  const NearChanges near = near_changes(best->steps);
  add_row("[recurring host event]", DistortionMethod::kRecurringHostEvent, near.recorded_ns, near.unrecorded_ns, found);
  return found;
}

const DistortionRecord* headline(const Trace& trace, const std::vector<DistortionRecord>& rows) {
  const DistortionRecord* best = nullptr;
  bool best_decodes = false;
  for (const DistortionRecord& row : rows) {
    bool decodes = false;
    for (Row s = 0; s < trace.steps.size() && !decodes; ++s) {
      decodes = trace.steps.kind[s] == StageKind::kDecode && trace.steps.phase[s] == StepPhase::kServing &&
                trace.text(trace.steps.stage[s]) == row.stage;
    }
    const bool better = best == nullptr || (decodes && !best_decodes) ||
                        (decodes == best_decodes && row.recorded_steps > best->recorded_steps);
    if (!better) continue;
    best = &row;
    best_decodes = decodes;
  }
  return best;
}

}  // namespace

std::optional<DistortionRecord> compare_step_times(const std::vector<double>& recorded_ns,
                                                   const std::vector<double>& unrecorded_ns) {
  if (recorded_ns.size() < kStepsMin || unrecorded_ns.size() < kStepsMin) return std::nullopt;
  const std::vector<double> with = thinned(recorded_ns), without = thinned(unrecorded_ns);
  const double plain = median_of(without), slowed = median_of(with);
  if (plain <= 0) return std::nullopt;
  const Interval ratio = bootstrap_median_ratio(with, without, kSeed);
  DistortionRecord row;
  row.distortion_frac = slowed / plain - 1;
  row.ci95_low_frac = ratio.low - 1;
  row.ci95_high_frac = ratio.high - 1;
  row.recorded_steps = static_cast<int64_t>(recorded_ns.size());
  row.unrecorded_steps = static_cast<int64_t>(unrecorded_ns.size());
  row.recorded_ms = slowed / 1e6;
  row.unrecorded_ms = plain / 1e6;
  return row;
}

std::vector<double> times_ns(const std::vector<TimedStep>& steps, bool recorded) {
  std::vector<double> out;
  for (const TimedStep& step : steps)
    if (step.recorded == recorded) out.push_back(step.ns);
  return out;
}

std::vector<StageTimes> stage_times(const Trace& trace, const HostPace& host_pace) {
  const Steps& steps = trace.steps;
  std::vector<StageTimes> out;
  std::map<std::string_view, size_t> slots;
  const CuptiAway away(trace);
  const std::vector<StepRecording> recordings = step_recordings(trace, away);
  const StepsAtPace chosen(trace, recordings, host_pace);
  for (Row s = 0; s < steps.size(); ++s) {
    if (steps.phase[s] == StepPhase::kWarmUp) continue;
    const std::string_view name = trace.text(steps.stage[s]);
    const auto [slot, fresh] = slots.emplace(name, out.size());
    if (fresh) out.push_back({std::string(name), steps.kind[s], {}});
    StageTimes& times = out[slot->second];
    const double window = static_cast<double>(steps.end_ns[s] - steps.start_ns[s]);
    const StepRecording recording = recordings[s];
    // Where CUPTI never left there is nothing better to compare with.
    const bool unrecorded =
        recording == StepRecording::kAlone || (recording == StepRecording::kAttached && !away.ever());
    if ((recording != StepRecording::kRecorded && !unrecorded) || !chosen.has(s)) continue;
    times.steps.push_back({!unrecorded, window});
  }
  return out;
}

namespace {

// What the recorder itself measured or did while the program ran: of several processes, the one that it cost most.
void add_run_cost(const Trace& trace, OverheadReport& overhead) {
  for (const auto& [key, value] : trace.metadata) {
    const bool cost = key.ends_with("recording_cost_frac");
    if (!cost && !key.ends_with("recording_budget_frac")) continue;
    double number = 0;
    if (std::from_chars(value.data(), value.data() + value.size(), number).ec != std::errc()) continue;
    std::optional<double>& to = cost ? overhead.run_frac : overhead.budget_frac;
    to = std::max(to.value_or(0), number);
  }
  const Recorded& recorded = trace.recorded;
  for (Row row = 0; row < recorded.size(); ++row) {
    // A row that records already says that CUPTI was attached and no call was made yet, however long that took.
    if (!is_switching(trace.text(recorded.reason[row])) || recorded.level[row] >= RecordingLevel::kDefault) continue;
    overhead.switching_ms = overhead.switching_ms.value_or(0) + static_cast<double>(recorded.dur_ns[row]) / 1e6;
  }
  if (!overhead.switching_ms) return;
  const RecordedSpans spans(trace);
  const Steps& steps = trace.steps;
  overhead.switching_steps = 0;
  for (Row s = 0; s < steps.size(); ++s)
    *overhead.switching_steps +=
        RecordedSpans::touches(spans.switching(steps.device[s]), steps.host_start_ns[s], steps.end_ns[s]);
}

// What recording does to the slow ones among the steps of a stage: CUPTI's coming and going holds up a few of them.
void add_slow_steps(const Trace& trace, OverheadReport& overhead) {
  constexpr size_t kEnough = 20;
  const Steps& steps = trace.steps;
  std::vector<double> windows, pauses;
  for (Row s = 0; s < steps.size(); ++s) {
    if (steps.phase[s] == StepPhase::kWarmUp || trace.text(steps.stage[s]) != overhead.stage) continue;
    (steps.state[s] == StepState::kNotRecorded ? pauses : windows)
        .push_back(static_cast<double>(steps.end_ns[s] - steps.start_ns[s]) / 1e6);
  }
  if (windows.size() < kEnough || pauses.size() < kEnough) return;
  overhead.windows_p99_ms = summarize_samples(std::move(windows))->p99;
  overhead.pauses_p99_ms = summarize_samples(std::move(pauses))->p99;
}

// Whether all there is was read beside the program, which does not notice that: `nvidia-smi dmon`, samplers alone.
bool only_readings(const Trace& trace) {
  return trace.gpu_ops.empty() && trace.ops.empty() && trace.api_calls.empty() && trace.annotations.empty() &&
         trace.recurring_calls.empty() && trace.graph_launches.empty() && trace.library_calls.empty();
}

// Headlines that hold what recording cost, because nothing else is known.
void ask_for_costs(const Context& context, const Report& report, std::vector<CannotTell>& cannot_tell) {
  if (!report.latency || on_cpu(context) || context.trace.gpu_ops.empty()) return;
  const Headline& headline = report.latency->headline;
  const auto recorded = [](const OptDouble& value, const IfKnown<StepTimeSource>& source) {
    return value && source == StepTimeSource::kRecorded;
  };
  const bool ttft = recorded(headline.ttft_ms, headline.ttft_source),
             itl = recorded(headline.itl_ms, headline.itl_source);
  if (!ttft && !itl) return;
  const bool costs = context.device != nullptr && !context.device->recorder_ns.empty();
  const char* const what = ttft && itl ? "TTFT and TPOT" : ttft ? "TTFT" : "TPOT";
  cannot_tell.push_back(
      {fmt::format("What {} {} without the recorder?", ttft && itl ? "are" : "is", what),
       costs ? "no step was left unrecorded with CUPTI out of the process, and the recorded ones are not "
               "given back by a replay"
             : "no step was left unrecorded with CUPTI out of the process, and what recording costs on "
               "this machine was not measured",
       costs ? "let the program run longer"
             : "llmprof peaks --recorder-only on the same machine, then llmprof analyze this recording"});
}

}  // namespace

void analyze_overhead(const Context& context, Report& report, std::vector<CannotTell>& cannot_tell) {
  const Trace& trace = context.trace;
  ask_for_costs(context, report, cannot_tell);
  OverheadReport overhead;
  overhead.records = static_cast<int64_t>(trace.overheads.size());
  for (const int64_t dur_ns : trace.overheads.dur_ns) overhead.recorded_ms.ns += dur_ns;
  overhead.method =
      "sum of the recorder's own overhead records; the cost of recording every operator and call is not among them";
  Found found;
  found.reason = "the recording does not contain an unrecorded run to compare with";
  if (context.options.baseline != nullptr) {
    found = against_baseline(trace, context.host_pace, *context.options.baseline);
  } else if (!trace.recorded.empty()) {
    found = within_run(trace, context.host_pace);
    if (found.rows.empty() && !trace.recurring_calls.empty()) {
      Found host = by_recurring_calls(trace);
      if (!host.rows.empty()) found = std::move(host);
    }
  }
  overhead.stages = std::move(found.rows);
  add_run_cost(trace, overhead);
  if (const CallsFactor& calls = context.replayed.calls; calls.changes > 0) {
    overhead.calls_factor = calls.factor;
    overhead.calls_factor_error = calls.error;
    overhead.calls_factor_changes = calls.changes;
  }
  if (const DistortionRecord* row = headline(trace, overhead.stages); row != nullptr) {
    overhead.distortion_frac = row->distortion_frac;
    overhead.ci95 = std::array<double, 2>{row->ci95_low_frac, row->ci95_high_frac};
    overhead.stage = row->stage;
    overhead.method = name_of(row->method);
    if (context.options.baseline == nullptr) add_slow_steps(trace, overhead);
  } else if (!only_readings(trace)) {
    const bool live = is_live_recording(trace);
    cannot_tell.push_back({"How much slower was the program because it was recorded?", std::move(found.reason),
                           on_cpu(context) ? "run the same without --record and compare TTFT and TPOT"
                           : live ? "record with `llmprof run --baseline -- COMMAND`, which runs it a second time in "
                                    "light mode, or longer, so that windows are left unrecorded"
                                  : "time the same requests without the profiler and compare with the stage table, or "
                                    "record with `llmprof run`, which states what it cost"});
  }
  report.overhead = std::move(overhead);
}

}  // namespace llmprof
