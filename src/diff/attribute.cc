#include "diff/attribute.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <set>

#include "base/parallel.h"
#include "base/statistics.h"
#include "derive/recorded_spans.h"
#include "diff/exchange.h"
#include "diff/pace.h"

namespace llmprof::diff {
namespace {

constexpr size_t kPairsMost = 5;         // of steps next to the medians
constexpr size_t kStepsAtPaceMost = 40;  // of a run, next to its median
// A replay that is further off does not give steps back as they were, and says nothing of what they consist of.
constexpr double kReplayErrorMost = 0.05;
// Rows times replays: more would take minutes.
constexpr double kWorkMost = 4e9;
constexpr double kShareLeast = 0.01;  // of all shares together: smaller ones by name are summed up
constexpr size_t kNamesMost = 5;      // of one part

std::string_view in_words(DiffPart part) {
  switch (part) {
    case DiffPart::kKernelReplaced:
      return "other kernels in the place of others";
    case DiffPart::kKernelSlower:
      return "the same kernels, at equal clock";
    case DiffPart::kClock:
      return "SM clock";
    case DiffPart::kLaunch:
      return "launching";
    case DiffPart::kWait:
      return "waits for the GPU";
    case DiffPart::kCopy:
      return "copies";
    case DiffPart::kHost:
      return "host code between CUDA calls";
    case DiffPart::kCount:
      return "number of launches";
    case DiffPart::kPace:
      return "pace of the host";
    case DiffPart::kOther:
      break;
  }
  return "streams and events, gaps on the GPU, other calls";
}

FollowsClock follows_clock(Bound bound) {
  if (bound == Bound::kCompute) return FollowsClock::kWholly;
  return bound == Bound::kLatency ? FollowsClock::kPartly : FollowsClock::kNo;
}

// The same kernel may be bound by one thing in a prompt and by another in a token, or with another shape.
std::map<std::string, FollowsClock> follows_clock(const Report& report, const StepGroup& group) {
  std::map<std::string, FollowsClock> out;
  for (const KernelRecord& row : report.kernels_topk) {
    if (!row.bound || row.stage != group.stage || row.device != group.device) continue;
    const FollowsClock follows = follows_clock(*row.bound);
    const auto [at, first] = out.emplace(row.name, follows);
    if (!first && at->second != follows) at->second = FollowsClock::kPartly;
  }
  return out;
}

}  // namespace

// A run's replay, and its steps by call.
struct PreparedRun {
  const Run& run;
  replay::StepReplay replay;
  RecorderCosts costs_measured;
  std::unique_ptr<replay::RecorderCostModel> costs;
  std::unique_ptr<replay::Recording> recording;
  std::vector<std::vector<ApiCallId>> calls;

  explicit PreparedRun(const Run& of) : run(of), replay(of.trace) {
    if (of.report.device && is_live_recording(of.trace)) costs_measured = of.report.device->recorder_ns;
    costs = std::make_unique<replay::RecorderCostModel>(
        costs_measured, of.report.overhead ? of.report.overhead->calls_factor.value_or(1) : 1);
    recording = std::make_unique<replay::Recording>(replay, *costs);
    calls = calls_by_step(*recording);
  }

  Replayable as_replayable(const StepGroup& group, bool without_recorder) const {
    Replayable out{recording.get(),    &replay,      replay::Durations(replay.timeline()),
                   replay.latencies(), std::nullopt, follows_clock(run.report, group)};
    if (without_recorder) take_recorder_out(replay.timeline(), *costs, out.durations, out.latencies);
    for (const StageTiming& stage : run.report.stages)
      if (stage.name == group.stage && stage.device == group.device) out.sm_clock_mhz = stage.sm_clock_mhz;
    return out;
  }
};

namespace {

double recorded_ns(const Trace& trace, StepId step) {
  return static_cast<double>(trace.steps.end_ns[step] - trace.steps.start_ns[step]);
}

// Replayed steps of the group nearest to their median, in order of their times.
std::vector<StepId> middle_steps(const Trace& trace, const StepGroup& group, const std::vector<StepId>& replayed,
                                 size_t most) {
  std::vector<StepId> steps;
  for (const StepId step : group.steps)
    if (is_recorded_whole(trace, step) && std::binary_search(replayed.begin(), replayed.end(), step))
      steps.push_back(step);
  std::stable_sort(steps.begin(), steps.end(),
                   [&](StepId a, StepId b) { return recorded_ns(trace, a) < recorded_ns(trace, b); });
  const size_t kept = std::min(most, steps.size());
  const size_t from = (steps.size() - kept) / 2;
  return {steps.begin() + static_cast<ptrdiff_t>(from), steps.begin() + static_cast<ptrdiff_t>(from + kept)};
}

std::vector<StepId> replayed_steps(const PreparedRun& of) {
  std::vector<StepId> out;
  for (StepId step = 0; step < of.run.trace.steps.size(); ++step)
    if (is_recorded_whole(of.run.trace, step) && of.replay.ends()[step].op != kNoRow) out.push_back(step);
  return out;
}

double mean_recorded(const Trace& trace, const std::vector<StepId>& steps) {
  double sum = 0;
  for (const StepId step : steps) sum += recorded_ns(trace, step);
  return steps.empty() ? 0 : sum / static_cast<double>(steps.size());
}

// How far off replay is in the mean of these steps, as they were recorded.
double replay_error(const PreparedRun& of, const std::vector<StepId>& steps) {
  double sum = 0;
  for (const int64_t ns : of.replay.windows_of(steps, replay::Durations(of.replay.timeline()), of.replay.latencies()))
    sum += static_cast<double>(ns);
  const double recorded = mean_recorded(of.run.trace, steps);
  return recorded > 0 ? std::abs(sum / static_cast<double>(steps.size()) / recorded - 1) : 1;
}

// The step before on its device, where it is one of the same kind and nothing lies between them.
StepId step_before(const Trace& trace, StepId step) {
  for (Row before = step; before-- > 0;)
    if (trace.steps.device[before] == trace.steps.device[step])
      return is_recorded_whole(trace, before) && trace.steps.kind[before] == trace.steps.kind[step] ? StepId(before)
                                                                                                    : StepId(kNoRow);
  return kNoRow;
}

// A part's share by name, in proportion to what was exchanged. Where that says little of the share (it adds up to
// something else, or is lost among what cancels out) the part has one row.
void split(DiffPart part, double share_ns, const std::map<std::string, double>& by_name, double all_ns,
           std::vector<DiffShare>& out) {
  const auto add = [&](const std::string& name, double ns) { out.push_back({part, name, ns / 1e6}); };
  double sum = 0, size = 0;
  for (const auto& [name, ns] : by_name) sum += ns, size += std::abs(ns);
  const double ratio = sum != 0 ? share_ns / sum : 0;
  constexpr double kCancelMost = 3;
  const bool one = by_name.size() == 1;
  if (!one && (ratio <= 0 || ratio > 1.5 || ratio * size > kCancelMost * std::abs(share_ns)))
    return add(std::string(in_words(part)), share_ns);
  std::vector<std::pair<std::string, double>> names;
  for (const auto& [name, ns] : by_name) names.emplace_back(name, one ? share_ns : ns * ratio);
  std::stable_sort(names.begin(), names.end(),
                   [](const auto& a, const auto& b) { return std::abs(a.second) > std::abs(b.second); });
  double rest = 0;
  for (size_t i = 0; i < names.size(); ++i)
    if (i < kNamesMost && std::abs(names[i].second) >= kShareLeast * all_ns)
      add(names[i].first, names[i].second);
    else
      rest += names[i].second;
  if (rest != 0) add(names.size() == 1 ? names[0].first : std::string(in_words(part)) + ", the rest", rest);
}

void largest_share_first(std::vector<DiffShare>& shares) {
  std::stable_sort(shares.begin(), shares.end(),
                   [](const DiffShare& a, const DiffShare& b) { return std::abs(a.delta_ms) > std::abs(b.delta_ms); });
}

// Without launches nothing can be replayed: kernels and idle time, added up.
Attribution by_sums(const Run& run_a, const StepGroup& a, const Run& run_b, const StepGroup& b,
                    const std::string& why) {
  Attribution out;
  out.by_replay = false;
  out.why_not = why;
  out.advice = "shares are sums of kernels by name: what other streams hide is in them";
  using Sums = std::map<std::string, double>;
  const auto sums_of = [](const Run& run, const StepGroup& group) {
    std::set<StepId> steps;
    for (const StepId step : group.steps)
      if (is_recorded_whole(run.trace, step)) steps.insert(step);
    Sums sums;
    for (GpuOpId op = 0; op < run.trace.gpu_ops.size(); ++op)
      if (steps.count(run.trace.gpu_links.step[op]) > 0)
        sums[std::string(run.trace.text(run.trace.gpu_ops.name[op]))] +=
            static_cast<double>(run.trace.gpu_ops.dur_ns[op]) / static_cast<double>(steps.size());
    return sums;
  };
  const Sums of_a = sums_of(run_a, a), of_b = sums_of(run_b, b);
  if (of_a.empty() || of_b.empty()) {
    out.why_not = "no kernel of these steps is recorded on " + std::string(of_a.empty() && of_b.empty() ? "both sides"
                                                                           : of_a.empty() ? "the first side"
                                                                                          : "the other side");
    out.advice = "compare recordings with kernels: llmprof run, or torch.profiler with CUDA";
    return out;
  }
  std::map<DiffPart, Sums> parts;
  for (const auto& [name, ns] : of_a) {
    const auto other = of_b.find(name);
    if (other == of_b.end())
      parts[DiffPart::kKernelReplaced][name + " -> none"] -= ns;
    else
      parts[DiffPart::kKernelSlower][name] += other->second - ns;
  }
  for (const auto& [name, ns] : of_b)
    if (of_a.count(name) == 0) parts[DiffPart::kKernelReplaced]["none -> " + name] += ns;
  double all = 0;
  for (const auto& [part, names] : parts)
    for (const auto& [name, ns] : names) all += std::abs(ns);
  for (const auto& [part, names] : parts) {
    double rest = 0;
    for (const auto& [name, ns] : names)
      if (std::abs(ns) >= kShareLeast * all)
        out.shares.push_back({part, name, ns / 1e6});
      else
        rest += ns;
    if (rest != 0) out.shares.push_back({part, std::string(in_words(part)) + ", the rest", rest / 1e6});
  }
  largest_share_first(out.shares);
  return out;
}

std::vector<DiffPart> parts_of(PartSet set) {
  std::vector<DiffPart> out;
  for (size_t part = 0; part < kDiffParts; ++part)
    if ((set & bit_of(static_cast<DiffPart>(part))) != 0) out.push_back(static_cast<DiffPart>(part));
  return out;
}

using StepPair = std::pair<StepId, StepId>;

// `counted` pairs of steps that stand for each other, and `before`: what lies before these. The pace between the
// counted.
HostPaceRatio add_pairs(const PreparedRun& a, const PreparedRun& b, const std::vector<StepPair>& counted,
                        const std::vector<StepPair>& before, Exchange& exchange) {
  Names names;
  std::vector<AlignedStep> aligned;
  for (const std::vector<StepPair>* pairs : {&counted, &before})
    for (const auto& [of_a, of_b] : *pairs)
      aligned.push_back(align_steps(*a.recording, a.calls[of_a], *b.recording, b.calls[of_b], names));
  const std::vector<HostPaceRatio> paces = paces_between(exchange.a(), exchange.b(), aligned);
  for (size_t i = 0; i < aligned.size(); ++i) exchange.add(aligned[i], paces[i], i < counted.size());
  const HostPaceRatio out = median_of_paces({paces.begin(), paces.begin() + static_cast<ptrdiff_t>(counted.size())});
  exchange.finish(out);
  return out;
}

// A step begins where the one before it ends, which is to be of the same program.
void align_in_order(const PreparedRun& a, const std::vector<StepId>& steps_a, const PreparedRun& b,
                    const std::vector<StepId>& steps_b, Exchange& exchange) {
  std::vector<StepPair> counted, before;
  std::set<StepId> done_a(steps_a.begin(), steps_a.end()), done_b(steps_b.begin(), steps_b.end());
  for (size_t i = 0; i < steps_a.size(); ++i) {
    counted.emplace_back(steps_a[i], steps_b[i]);
    const StepId before_a = step_before(a.run.trace, steps_a[i]), before_b = step_before(b.run.trace, steps_b[i]);
    if (before_a == kNoRow || before_b == kNoRow || done_a.count(before_a) > 0 || done_b.count(before_b) > 0) continue;
    done_a.insert(before_a);
    done_b.insert(before_b);
    before.emplace_back(before_a, before_b);
  }
  add_pairs(a, b, counted, before, exchange);
}

Attribution by_replay(const PreparedRun& a, const StepGroup& group_a, const std::vector<StepId>& steps_a,
                      const PreparedRun& b, const StepGroup& group_b, const std::vector<StepId>& steps_b) {
  const bool without = a.costs->known() && b.costs->known();
  const Replayable of_a = a.as_replayable(group_a, without), of_b = b.as_replayable(group_b, without);
  Exchange exchange(of_a, of_b);
  align_in_order(a, steps_a, b, steps_b, exchange);
  const std::vector<DiffPart> parts = parts_of(exchange.active());
  std::vector<double> value(size_t{1} << parts.size());
  parallel_for(value.size(), [&](size_t set) {
    PartSet exchanged = 0;
    for (size_t i = 0; i < parts.size(); ++i)
      if ((set >> i & 1) != 0) exchanged |= bit_of(parts[i]);
    value[set] = exchange.evaluate(exchanged, steps_a, steps_b);
  });
  const std::vector<double> shares = shapley(value, parts.size());
  Attribution out;
  double all = 0;
  for (const double ns : shares) all += std::abs(ns);
  const double steps = static_cast<double>(steps_a.size());
  for (size_t i = 0; i < parts.size(); ++i) {
    if (shares[i] == 0) continue;
    std::map<std::string, double> names = exchange.by_name()[static_cast<size_t>(parts[i])];
    for (auto& [name, ns] : names) ns /= steps;
    split(parts[i], shares[i], names, all, out.shares);
  }
  largest_share_first(out.shares);
  return out;
}

}  // namespace

std::vector<double> shapley(const std::vector<double>& value, size_t parts) {
  std::vector<double> weight(parts);  // of a set of so many parts, for one that is not in it
  for (size_t size = 0; size < parts; ++size) {
    // size! (parts - size - 1)! / parts!  =  1 / (parts * C(parts - 1, size))
    double choose = 1;
    for (size_t i = 0; i < size; ++i) choose = choose * static_cast<double>(parts - 1 - i) / static_cast<double>(i + 1);
    weight[size] = 1 / (static_cast<double>(parts) * choose);
  }
  std::vector<double> out(parts, 0);
  for (size_t set = 0; set < value.size(); ++set) {
    size_t size = 0;
    for (size_t part = 0; part < parts; ++part) size += set >> part & 1;
    for (size_t part = 0; part < parts; ++part)
      if ((set >> part & 1) == 0) out[part] += weight[size] * (value[set | size_t{1} << part] - value[set]);
  }
  return out;
}

struct Attributor::Prepared : PreparedRun {
  using PreparedRun::PreparedRun;
};

Attributor::Attributor() = default;
Attributor::~Attributor() = default;

const Attributor::Prepared& Attributor::prepared(const Run& run) {
  std::unique_ptr<Prepared>& found = prepared_[&run];
  if (!found) found = std::make_unique<Prepared>(run);
  return *found;
}

namespace {

// As many steps of both, next to their medians.
struct MiddleSteps {
  std::vector<StepId> a, b;
};
MiddleSteps middle_steps_of(const PreparedRun& a, const StepGroup& group_a, const PreparedRun& b,
                            const StepGroup& group_b) {
  const std::vector<StepId> replayed_a = replayed_steps(a), replayed_b = replayed_steps(b);
  MiddleSteps out{middle_steps(a.run.trace, group_a, replayed_a, kPairsMost),
                  middle_steps(b.run.trace, group_b, replayed_b, kPairsMost)};
  const size_t pairs = std::min(out.a.size(), out.b.size());
  out.a = middle_steps(a.run.trace, group_a, replayed_a, pairs);
  out.b = middle_steps(b.run.trace, group_b, replayed_b, pairs);
  return out;
}

// Those next to the median, if replay gives them back.
std::vector<StepId> steps_to_compare(const PreparedRun& of, const StepGroup& group, size_t most) {
  std::vector<StepId> steps = middle_steps(of.run.trace, group, replayed_steps(of), most);
  if (replay_error(of, steps) > kReplayErrorMost) steps.clear();
  return steps;
}

}  // namespace

bool Attributor::is_replayable(const GroupOfRun& of) {
  return !steps_to_compare(prepared(*of.run), *of.group, 1).empty();
}

// All steps against one, whose own hesitations are then the same for all runs.
std::optional<StepAtPace> Attributor::at_pace(const GroupOfRun& at, const GroupOfRun& run) {
  const PreparedRun& of_a = prepared(*at.run);
  const PreparedRun& of_b = prepared(*run.run);
  const std::vector<StepId> reference = steps_to_compare(of_a, *at.group, 1);
  const std::vector<StepId> steps = steps_to_compare(of_b, *run.group, kStepsAtPaceMost);
  if (reference.empty() || steps.empty()) return {};
  const bool without = of_a.costs->known() && of_b.costs->known();
  const Replayable as_a = of_a.as_replayable(*at.group, without), as_b = of_b.as_replayable(*run.group, without);
  Exchange exchange(as_a, as_b);
  std::vector<StepPair> counted, before;
  std::set<StepId> done(steps.begin(), steps.end());
  for (const StepId step : steps) {
    counted.emplace_back(reference.front(), step);
    const StepId earlier = step_before(of_b.run.trace, step);
    if (earlier != kNoRow && done.insert(earlier).second) before.emplace_back(reference.front(), earlier);
  }
  StepAtPace out;
  out.pace = add_pairs(of_a, of_b, counted, before, exchange);
  if (!out.pace.known() && at.run != run.run) return {};
  std::vector<double> ms;
  for (const int64_t ns : exchange.at_pace_of_a(steps))
    if (ns > 0) ms.push_back(static_cast<double>(ns) / 1e6);
  if (ms.empty()) return {};
  out.ms = median_of(ms);
  out.steps = static_cast<int64_t>(ms.size());
  if (ms.size() > 1) {
    const Interval interval = bootstrap_median(ms);
    out.low_ms = interval.low, out.high_ms = interval.high;
  }
  return out;
}

Attribution Attributor::attribute(const GroupOfRun& a, const GroupOfRun& b) {
  const PreparedRun& of_a = prepared(*a.run);
  const PreparedRun& of_b = prepared(*b.run);
  const Trace& trace_a = a.run->trace;
  const Trace& trace_b = b.run->trace;
  const MiddleSteps steps = middle_steps_of(of_a, *a.group, of_b, *b.group);
  if (steps.a.empty())
    return by_sums(*a.run, *a.group, *b.run, *b.group,
                   "a recording holds no launches of these steps, or not all of them");
  const auto rows = [](const Trace& trace) {
    return static_cast<double>(trace.api_calls.size() + trace.gpu_ops.size());
  };
  if (std::max(rows(trace_a), rows(trace_b)) * static_cast<double>(1U << kDiffParts) > kWorkMost)
    return by_sums(*a.run, *a.group, *b.run, *b.group, "the recordings are too large to be replayed hundreds of times");
  const double error = std::max(replay_error(of_a, steps.a), replay_error(of_b, steps.b));
  if (error > kReplayErrorMost)
    return by_sums(*a.run, *a.group, *b.run, *b.group,
                   fmt::format("replay gives these steps back {:.0f} % wrong", 100 * error));
  return by_replay(of_a, *a.group, steps.a, of_b, *b.group, steps.b);
}

}  // namespace llmprof::diff
