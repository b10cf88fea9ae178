#include "diff/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "base/statistics.h"

namespace llmprof::diff {
namespace {

constexpr size_t kFewestForInterval = 3;

std::optional<Figure> figure_of(OptDouble value, OptDouble low, OptDouble high, int64_t samples) {
  if (!value || *value <= 0) return std::nullopt;
  Figure out{*value, std::nullopt, std::nullopt, samples};
  if (low && high && *low > 0 && *high >= *low) out.low = *low, out.high = *high;
  return out;
}

// The same relative interval around another value: that of steps at full pace has none of its own.
Figure moved_to(const Figure& of, double value, int64_t samples) {
  Figure out{value, std::nullopt, std::nullopt, samples};
  if (of.low) out.low = *of.low / of.value * value, out.high = *of.high / of.value * value;
  return out;
}

bool is_steady(const Trace& trace, StepId step) {
  return trace.steps.phase[step] == StepPhase::kServing && trace.steps.state[step] != StepState::kWindowEdge;
}

const StageTiming* timing_of(const Report& report, const StepGroup& group) {
  for (const StageTiming& stage : report.stages)
    if (stage.name == group.stage && stage.device == group.device) return &stage;
  return nullptr;
}

// Without the recorder where that is known.
std::optional<double> step_ms(const Run& run, StepId step) {
  const Steps& steps = run.trace.steps;
  const double as_recorded = static_cast<double>(steps.end_ns[step] - steps.start_ns[step]) / 1e6;
  if (step >= run.report.steps.size()) return as_recorded;
  const StepRecord& record = run.report.steps[step];
  if (record.undisturbed_ms) return *record.undisturbed_ms;
  // Recorded by llmprof, and what it took alone is not known.
  if (record.recording == "attached" || record.recording == "edge") return std::nullopt;
  return as_recorded;
}

// Of steps whose kernels are not recorded nothing tells the shape: where a run has one shape of their stage, it is
// that.
std::vector<StepGroup> join_unknown(std::vector<StepGroup> groups) {
  const auto is_unknown = [](const StepGroup& group) { return group.sequences < 0 && group.tokens < 0; };
  for (StepGroup& group : groups) {
    if (!is_unknown(group)) continue;
    StepGroup* only = nullptr;
    size_t others = 0;
    for (StepGroup& other : groups)
      if (!is_unknown(other) && other.kind == group.kind && other.name == group.name && other.device == group.device)
        only = &other, ++others;
    if (others != 1) continue;
    only->steps.insert(only->steps.end(), group.steps.begin(), group.steps.end());
    std::sort(only->steps.begin(), only->steps.end());
    only->total_ns += group.total_ns;
    group.steps.clear();
  }
  std::erase_if(groups, [](const StepGroup& group) { return group.steps.empty(); });
  return groups;
}

// The process with most probes; null where nothing was probed.
const HostPaceRecord* most_probed(const Report& report) {
  const auto most =
      std::max_element(report.host_pace.begin(), report.host_pace.end(),
                       [](const HostPaceRecord& a, const HostPaceRecord& b) { return a.probes < b.probes; });
  return most == report.host_pace.end() ? nullptr : &*most;
}

}  // namespace

std::optional<Figure> headline(const Report& report, DiffMetric metric, bool full_pace) {
  if (!report.latency) return std::nullopt;
  const Headline& of = report.latency->headline;
  if (metric == DiffMetric::kTtft) {
    const std::optional<Figure> all = figure_of(of.ttft_ms, of.ttft_ci95_low_ms, of.ttft_ci95_high_ms, of.ttft_n);
    if (!all || !full_pace) return all;
    if (!of.ttft_full_pace_ms) return std::nullopt;
    return moved_to(*all, *of.ttft_full_pace_ms, of.ttft_full_pace_n.value_or(0));
  }
  const std::optional<Figure> itl = figure_of(of.itl_ms, of.itl_ci95_low_ms, of.itl_ci95_high_ms, of.itl_n);
  if (metric == DiffMetric::kTpot) {
    const OptDouble value = of.tpot_ms ? of.tpot_ms : of.itl_ms;
    if (!itl || !value) return std::nullopt;
    if (!full_pace) return moved_to(*itl, *value, of.itl_n);
    if (!of.itl_full_pace_ms) return std::nullopt;
    return moved_to(*itl, *of.itl_full_pace_ms, of.itl_full_pace_n.value_or(0));
  }
  if (!of.output_tokens_per_s || *of.output_tokens_per_s <= 0 || !itl || full_pace) return std::nullopt;
  // Tokens over the time of the same steps, a mean: slow ones count in full, and it is as sure as the mean of steps is.
  Figure out{*of.output_tokens_per_s, std::nullopt, std::nullopt, of.itl_n};
  const std::optional<Summary>& steps = report.latency->itl_ms;
  if (!steps || !steps->stddev || steps->n < static_cast<int64_t>(kFewestForInterval) || steps->mean <= 0) return out;
  const double error = 1.96 * *steps->stddev / (steps->mean * std::sqrt(static_cast<double>(steps->n)));
  out.low = out.value * std::exp(-error), out.high = out.value * std::exp(error);
  return out;
}

std::vector<StepGroup> step_groups(const Run& run) {
  const Steps& steps = run.trace.steps;
  std::map<StageKind, std::set<StringId>> stages;  // a kind may have several, a vision encoder and what prepares for it
  for (Row step = 0; step < steps.size(); ++step)
    if (is_steady(run.trace, step)) stages[steps.kind[step]].insert(steps.stage[step]);
  std::map<std::tuple<StageKind, std::string, int32_t, int64_t, int64_t>, StepGroup> found;
  std::map<std::pair<StringId, int32_t>, size_t> of_stage;  // how many steady steps a stage has
  for (Row step = 0; step < steps.size(); ++step) {
    if (!is_steady(run.trace, step)) continue;
    const StageKind kind = steps.kind[step];
    const bool by_name = kind == StageKind::kOther || stages[kind].size() > 1;
    const std::string name(by_name ? run.trace.text(steps.stage[step]) : name_of(kind));
    StepGroup& group = found[{kind, name, steps.device[step], steps.sequences[step], steps.new_tokens[step]}];
    group.kind = kind;
    group.name = name;
    group.device = steps.device[step];
    group.sequences = steps.sequences[step];
    group.tokens = steps.new_tokens[step];
    if (const int64_t context = steps.context[step]; context >= 0) {
      group.context_low = group.context_low < 0 ? context : std::min(group.context_low, context);
      group.context_high = std::max(group.context_high, context);
    }
    group.steps.push_back(step);
    group.total_ns += steps.end_ns[step] - steps.start_ns[step];
    ++of_stage[{steps.stage[step], steps.device[step]}];
  }
  std::vector<StepGroup> alike;
  for (auto& [key, group] : found) alike.push_back(std::move(group));
  std::vector<StepGroup> out;
  for (StepGroup& group : join_unknown(std::move(alike))) {
    // Stages have suffixes for what was not recorded; the name of the usual one is the bare text.
    std::map<StringId, size_t> names;
    for (const StepId step : group.steps) ++names[steps.stage[step]];
    const auto most =
        std::max_element(names.begin(), names.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
    group.stage = run.trace.text(most->first);
    group.whole_stage = names.size() == 1 && of_stage[{most->first, group.device}] == group.steps.size();
    out.push_back(std::move(group));
  }
  std::stable_sort(out.begin(), out.end(),
                   [](const StepGroup& a, const StepGroup& b) { return a.total_ns > b.total_ns; });
  return out;
}

std::optional<Figure> step_figure(const Run& run, const StepGroup& group) {
  if (group.whole_stage) {
    for (const UndisturbedRecord& row : run.report.undisturbed) {
      if (row.stage != group.stage || row.device != group.device || row.step_ms <= 0) continue;
      const int64_t samples = row.source == StepTimeSource::kUnrecorded ? row.unrecorded_steps
                              : row.source == StepTimeSource::kReplayed ? row.replayed_steps
                                                                        : row.recorded_steps;
      const bool few = samples < static_cast<int64_t>(kFewestForInterval);
      return figure_of(row.step_ms, few ? OptDouble() : row.ci95_low_ms, few ? OptDouble() : row.ci95_high_ms, samples);
    }
  }
  std::vector<double> times;
  for (const StepId step : group.steps)
    if (const std::optional<double> ms = step_ms(run, step); ms && *ms > 0) times.push_back(*ms);
  if (times.empty()) return std::nullopt;
  Figure out{median_of(times), std::nullopt, std::nullopt, static_cast<int64_t>(times.size())};
  if (times.size() < kFewestForInterval) return out;
  const Interval interval = bootstrap_median(times);
  out.low = interval.low, out.high = interval.high;
  return out;
}

bool is_recorded_whole(const Trace& trace, StepId step) {
  return trace.steps.state[step] == StepState::kUsual && trace.steps.missing[step] == MissingKernels::kNone &&
         trace.steps.phase[step] == StepPhase::kServing;
}

std::optional<double> recorded_step_ms(const Run& run, const StepGroup& group) {
  const Steps& steps = run.trace.steps;
  std::vector<double> times;
  for (const StepId step : group.steps) {
    if (!is_recorded_whole(run.trace, step)) continue;
    const OptDouble without = step < run.report.steps.size() ? run.report.steps[step].undisturbed_ms : OptDouble();
    times.push_back(without ? *without : static_cast<double>(steps.end_ns[step] - steps.start_ns[step]) / 1e6);
  }
  if (times.empty()) return std::nullopt;
  return median_of(std::move(times));
}

double host_frac(const Report& report, const StepGroup& group) {
  if (report.device && report.device->cpu) return 1;
  for (const CriticalPathRecord& row : report.critical_path) {
    if (row.stage != group.stage || row.device != group.device || row.step_ms.ns <= 0) continue;
    const int64_t gpu = row.gpu_work_ms.ns + row.gpu_gap_ms.ns;
    return std::clamp(1 - static_cast<double>(gpu) / static_cast<double>(row.step_ms.ns), 0.0, 1.0);
  }
  const StageTiming* const timing = timing_of(report, group);
  return timing != nullptr && timing->gpu_busy_frac ? std::clamp(1 - *timing->gpu_busy_frac, 0.0, 1.0) : 1;
}

double host_frac(const Run& run, StageKind kind) {
  for (const StepGroup& group : step_groups(run))
    if (group.kind == kind) return host_frac(run.report, group);
  return 1;
}

std::optional<double> cpu_slow_frac(const Report& report) {
  const HostPaceRecord* const most = most_probed(report);
  return most == nullptr ? std::nullopt : std::optional(most->slow_frac);
}

std::optional<double> cpu_waited_frac(const Report& report) {
  const HostPaceRecord* const most = most_probed(report);
  return most == nullptr ? std::nullopt : most->waited_frac;
}

std::string shape_text(const StepGroup& a, const StepGroup& b) {
  std::string out;
  const auto add = [&out](const std::string& part) { out += (out.empty() ? "" : ", ") + part; };
  const auto count = [&](int64_t of_a, int64_t of_b, std::string_view word) {
    if (of_a < 0 && of_b < 0) return;
    const int64_t one = of_a < 0 ? of_b : of_a;
    if (of_a == of_b || of_a < 0 || of_b < 0)
      add(fmt::format("{} {}{}", one, word, one == 1 ? "" : "s"));
    else
      add(fmt::format("{} and {} {}s", of_a, of_b, word));
  };
  count(a.sequences, b.sequences, "sequence");
  count(a.tokens, b.tokens, "token");
  if (a.context_high < 0 && b.context_high < 0) return out;
  const auto range = [](const StepGroup& group) {
    return group.context_high < 0                    ? std::string("?")
           : group.context_low == group.context_high ? fmt::format("{}", group.context_high)
                                                     : fmt::format("{} to {}", group.context_low, group.context_high);
  };
  add("context " + (range(a) == range(b) ? range(a) : range(a) + " and " + range(b)));
  return out;
}

}  // namespace llmprof::diff
