// Host work that prepares inputs while the model waits: stages of the program that do nothing else, gaps before and
// between steps, Python functions that tokenise or process images; and waits for what is to come.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "analyze/finding.h"
#include "analyze/processor.h"
#include "base/text_table.h"
#include "derive/host_calls.h"
#include "derive/no_input.h"

namespace llmprof {
namespace {

constexpr std::string_view kAtPython = "python";
constexpr double kPreparingShareMin = 0.10;  // shorter pauses are what any scheduler needs

// Whether the name of a stage before a prompt is that of a part of the model (vision encoder, ViT, projector).
bool names_model(std::string_view name) {
  constexpr std::array<std::string_view, 5> kPreparing{"process", "tokeni", "prepar", "resiz", "load"};
  constexpr std::array<std::string_view, 7> kModel{"vision", "visual", "vit", "encod", "project", "tower", "embed"};
  std::string lower(name);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  const auto holds = [&](std::string_view word) { return lower.find(word) != std::string::npos; };
  return std::none_of(kPreparing.begin(), kPreparing.end(), holds) && std::any_of(kModel.begin(), kModel.end(), holds);
}

// Whether a part of the model runs in the stage: what prepares inputs has no products and no attention. Where nothing
// of the stage was recorded but its time, the name tells.
bool runs_model(const FindingContext& finding, uint32_t stage) {
  const Groups& groups = finding.context.groups;
  if (groups.stages[stage].gpu_ops == 0) return names_model(finding.trace().text(groups.stages[stage].name));
  for (uint32_t k = 0; k < groups.kernels.size(); ++k) {
    const KernelKey& key = groups.kernel_keys.key(k);
    if (key.stage == stage && is_arithmetic(key.category)) return true;
  }
  return false;
}

const StageTiming* timing_of(const FindingContext& finding, const StageGroup& group) {
  const std::string name = stage_name(finding.trace(), group);
  for (const StageTiming& row : finding.report.stages)
    if (row.name == name && row.device == group.device) return &row;
  return nullptr;
}

// Time of the stage in which the model waits for it: all of it but what the GPU does, and what the recorder does.
double waiting_ns(const FindingContext& finding, const StageView& stage) {
  return on_cpu(finding.context) ? stage.wall_ns() : stage.own_ns() - stage.busy_ns();
}

}  // namespace

void add_preparations(const std::vector<StageConsequence>& consequences, FindingContext& finding) {
  const Groups& groups = finding.context.groups;
  const bool nothing_ran = finding.trace().gpu_ops.empty();
  for (uint32_t s = 0; s < groups.stages.size(); ++s) {
    const StageGroup& group = groups.stages[s];
    const bool known = group.missing == MissingKernels::kNone || nothing_ran;
    const bool named = group.kind == StageKind::kVision && group.source != StageSource::kDetected;
    if (group.unattributed || group.is_warm_up() || !named || !known || group.wall_ns <= 0 || runs_model(finding, s))
      continue;
    const StageTiming* timing = timing_of(finding, group);
    if (timing == nullptr || consequences[s].metric == GainMetric::kNone) continue;
    StageView view;
    view.stage = s;
    view.group = &group;
    view.timing = timing;
    view.consequence = consequences[s];
    fill_sums(finding.context, view);
    if (view.consequence.share(waiting_ns(finding, view), view.wall_ns()) < kPreparingShareMin) continue;
    finding.preparations.push_back(std::move(view));
  }
}

void find_preparations(const FindingContext& finding) {
  for (const StageView& stage : finding.preparations) {
    const double gain_ns = waiting_ns(finding, stage);
    const bool of_ttft = stage.consequence.metric == GainMetric::kTtft;
    Finding& out = finding.add(
        "host-preprocessing", &stage,
        fmt::format("{}{} of {} goes to preparing inputs before the model runs", stage.label(),
                    format_percent(stage.consequence.share(gain_ns, stage.wall_ns())), of_ttft ? "TTFT" : "the time"),
        gain_ns);
    out.evidence = {measured("time of the stage per step", stage.per_step_ms(stage.wall_ns()), Unit::kMs),
                    measured("times it ran", stage.count(), Unit::kOne)};
    if (!on_cpu(finding.context) && !finding.trace().gpu_ops.empty())
      out.evidence.push_back(
          measured("of it per step in which the GPU did nothing", stage.per_step_ms(gain_ns), Unit::kMs));
    out.advice = {
        "Prepare the inputs of the next requests while the model serves earlier ones: in other processes or threads, "
        "with the compiled tokeniser."};
    if (!on_cpu(finding.context)) out.advice.push_back("Resize and normalise images on the GPU.");
    // A CPU's preparation is its work, all of which can go elsewhere.
    out.bound = on_cpu(finding.context) ? stage.bound(gain_ns) : stage.bound_of_waiting(gain_ns);
  }
}

namespace {

// Idle time of the GPU behind host code that is in no CUDA call, in gaps of at least kLongGapNs.
struct HostGaps {
  double within_ns = 0;   // before the first activity of steps: a part of them
  double outside_ns = 0;  // outside every step
  double alone_ns = 0;    // in stages of the program that launch nothing
  double whole_ns = 0;    // all of it, of the whole recording
  int64_t count = 0;
  double recorded_ns() const { return within_ns + outside_ns + alone_ns; }
  void add(const HostGaps& other) {
    within_ns += other.within_ns, outside_ns += other.outside_ns, alone_ns += other.alone_ns;
    whole_ns += other.whole_ns, count += other.count;
  }
};

// Such time outside every step, by the step behind it.
struct GapsOutside {
  HostGaps sum;
  std::set<StepId> before;
  // Before most of so many steps. Else it is a few pauses, and none of what a step waits for.
  bool before_most(double steps) const { return static_cast<double>(before.size()) * 2 > steps; }
};

// Of a gap, what is host code: not what the thread that ends it waits in CUDA calls, for another GPU, and nothing where
// the program does nothing for nearly all of it.
int64_t host_code_of(const Trace& trace, const HostCalls& calls, const NoInput& no_input, Row gap) {
  const int64_t start = trace.gaps.start_ns[gap], end = start + trace.gaps.dur_ns[gap];
  const ApiCallId launch = trace.gpu_links.api[trace.gaps.next_gpu_op[gap]];
  if (launch == kNoRow) return end - start;
  const ThreadId thread = trace.api_calls.thread[launch];
  const std::vector<BlockingCall>& waits = calls.blocking(thread);
  int64_t waited = no_input.within_ns(thread, start, end);
  for (auto wait = std::partition_point(waits.begin(), waits.end(),
                                        [&](const BlockingCall& one) { return one.end_ns <= start; });
       wait != waits.end() && wait->start_ns < end; ++wait)
    waited += std::min(end, wait->end_ns) - std::max(start, wait->start_ns);
  return end - start - waited;
}

// By the stage of the step behind them; in stages that launch nothing by that stage; pauses outside every step by the
// row of what lies there.
std::map<uint32_t, HostGaps> gaps_between(const FindingContext& finding) {
  const Trace& trace = finding.trace();
  const Gaps& gaps = trace.gaps;
  const Groups& groups = finding.context.groups;
  std::map<uint32_t, HostGaps> out;
  std::map<uint32_t, GapsOutside> outside;
  const HostCalls calls(trace);
  const NoInput no_input(trace);
  for (const StageView& stage : finding.stages) {
    if (finding.preparation(stage.stage) != nullptr || stage.host.boundary_gaps == 0) continue;
    out[stage.stage].add({stage.host.boundary_ns, 0, 0, finding.whole_ns(stage.stage, stage.host.boundary_ns),
                          stage.host.boundary_gaps});
  }
  for (Row g = 0; g < gaps.size(); ++g) {
    if (gaps.dur_ns[g] < kLongGapNs || finding.before_serving(gaps.device[g], gaps.start_ns[g])) continue;
    const double gap_ns = static_cast<double>(gaps.dur_ns[g]);
    const uint32_t stage =
        gaps.step[g] != kNoRow ? groups.stage_of_step[gaps.step[g]] : groups.unattributed(gaps.device[g]);
    if (groups.stages[stage].is_warm_up()) continue;
    const double whole_ns = finding.whole_ns(stage, gap_ns);
    if (gaps.cause[g] == IdleCause::kHostWork && gaps.step[g] != kNoRow && groups.stages[stage].gpu_ops == 0 &&
        finding.preparation(stage) == nullptr) {
      out[stage].add({0, 0, gap_ns, whole_ns, 1});
    } else if (gaps.cause[g] == IdleCause::kNoWork && gaps.next_gpu_op[g] != kNoRow) {
      // Between two steps: before the first one the program starts, after the last one it ends.
      const StepId next = trace.gpu_links.step[gaps.next_gpu_op[g]];
      const bool first = trace.steps.empty() || gaps.start_ns[g] < trace.steps.start_ns[0];
      const int64_t code_ns = host_code_of(trace, calls, no_input, g);
      if (next == kNoRow || first || code_ns < kLongGapNs) continue;
      const double outside_ns = static_cast<double>(code_ns);
      GapsOutside& gaps_of = outside[groups.stage_of_step[next]];
      gaps_of.sum.add({0, outside_ns, 0, finding.whole_ns(stage, outside_ns), 1});
      gaps_of.before.insert(next);
    }
  }
  for (const auto& [stage, gaps_before] : outside) {
    const auto view = std::find_if(finding.stages.begin(), finding.stages.end(),
                                   [&, stage = stage](const StageView& one) { return one.stage == stage; });
    const bool before_steps = view == finding.stages.end() || gaps_before.before_most(view->count());
    out[before_steps ? stage : groups.unattributed(groups.stages[stage].device)].add(gaps_before.sum);
  }
  return out;
}

// The stage of the step in which host code ends, or before which it does.
uint32_t stage_behind(const FindingContext& finding, int64_t end_ns) {
  const Steps& steps = finding.trace().steps;
  const std::vector<uint32_t>& stages = finding.context.groups.stage_of_step;
  const size_t after = static_cast<size_t>(std::upper_bound(steps.start_ns.begin(), steps.start_ns.end(), end_ns) -
                                           steps.start_ns.begin());
  for (size_t s = after; s-- > 0 && after - s <= 4;)  // of several devices
    if (steps.end_ns[s] >= end_ns) return stages[s];
  return after < stages.size() ? stages[after] : kNoRow;
}

// Long host code by its Python code, at most two: where the thread was in it, or the call behind it.
class LongestCode {
 public:
  explicit LongestCode(const Trace& trace) : trace_(trace), places_(trace) {}
  void add(Row row) {
    const CodePlace place = places_.of(row);
    auto& [ns, count] = sums_[{python_place(place.text(trace_)), place.sampled}];
    ns += trace_.host_places.dur_ns[row];
    ++count;
  }
  void add_to(Finding& out, double steps) const {
    constexpr size_t kPlacesMost = 2;
    std::vector<std::pair<Key, Sum>> longest(sums_.begin(), sums_.end());
    std::stable_sort(longest.begin(), longest.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
    if (longest.size() > kPlacesMost) longest.resize(kPlacesMost);
    for (const auto& [key, sum] : longest)
      out.where.push_back({std::string(key.second ? kAtPython : kBeforePython), key.first,
                           static_cast<double>(sum.second) / std::max(1.0, steps)});
  }

 private:
  using Key = std::pair<std::string, bool>;  // place, and whether the thread was seen there
  using Sum = std::pair<int64_t, int64_t>;   // length and number
  const Trace& trace_;
  CodePlaces places_;
  std::map<Key, Sum> sums_;
};

// The Python code of the longest stretches of host code between CUDA calls, before steps of these stages (of none in
// particular: of all).
void add_places_between(const FindingContext& finding, const std::vector<uint32_t>& stages, double steps,
                        Finding& out) {
  const HostPlaces& places = finding.trace().host_places;
  const NoInput no_input(finding.trace());
  LongestCode longest(finding.trace());
  for (Row row = 0; row < places.size(); ++row) {
    if (places.kind[row] != PlaceKind::kHostCode || places.dur_ns[row] < kLongGapNs) continue;
    if (no_input.holds(places.thread[row], places.start_ns[row], places.start_ns[row] + places.dur_ns[row])) continue;
    const std::map<int32_t, int64_t>& from = finding.serving_from_ns;
    const bool serves = from.empty() || std::any_of(from.begin(), from.end(), [&](const auto& device) {
                          return places.start_ns[row] >= device.second;
                        });
    const uint32_t behind = stage_behind(finding, places.start_ns[row] + places.dur_ns[row]);
    if (!serves || std::find(stages.begin(), stages.end(), behind) == stages.end()) continue;
    longest.add(row);
  }
  longest.add_to(out, steps);
}

void explain(const HostGaps& idle, Finding& out) {
  out.evidence = {measured("such idle time, recorded", idle.recorded_ns() / 1e6, Unit::kMs),
                  measured("of it before the first activity of steps", idle.within_ns / 1e6, Unit::kMs),
                  measured("of it outside every step", idle.outside_ns / 1e6, Unit::kMs)};
  if (idle.alone_ns > 0)
    out.evidence.push_back(measured("of it in stages that launch nothing", idle.alone_ns / 1e6, Unit::kMs));
  out.evidence.push_back(measured("gaps of 200 us or more that it is", static_cast<double>(idle.count), Unit::kOne));
  out.evidence.push_back(
      measured("their mean length", idle.recorded_ns() / static_cast<double>(idle.count) / 1e6, Unit::kMs));
  out.advice = {
      "Prepare the next inputs (tokenising, image processing, padding, scheduling) while the GPU works: in another "
      "process or thread, or one step ahead.",
      "If the program waits for requests there, nothing is lost; `llmprof run --torch` names the Python code."};
}

// Host code before the steps of one stage is a part of what they take.
void add_gaps_before(const FindingContext& finding, const StageView& stage, const HostGaps& idle) {
  const double beyond_ns = idle.outside_ns, before_ns = idle.within_ns + beyond_ns;
  const bool counts_steps = beyond_ns * 2 < before_ns;
  Finding& out = finding.add("host-preprocessing", counts_steps ? &stage : nullptr,
                             fmt::format("{}the GPU waits {} for host code before each step", stage.label(),
                                         format_ms(stage.per_step_ms(before_ns))),
                             counts_steps ? before_ns : idle.whole_ns);
  if (counts_steps) {
    out.bound = stage.bound_of_waiting(before_ns);
  } else {
    // Of a step and what lies before it: beside each other, the longer of the two is what a step takes.
    const double step_ms = stage.consequence.now_ms, before_ms = stage.per_step_ms(beyond_ns);
    finding.raise(stage.stage, before_ns * stage.wall_ns() / (stage.wall_ns() + before_ns), out);
    out.beyond_steps = true;
    out.bound = GainBound{stage.consequence.metric, step_ms + before_ms, std::max(step_ms, before_ms)};
  }
  add_places_between(finding, {stage.stage}, stage.count(), out);
  explain(idle, out);
}

// Live recordings without Python frames: what lies before the steps of a stage that it is a good part of, and then what
// is left.
void find_host_between_steps(const FindingContext& finding) {
  std::map<uint32_t, HostGaps> idle = gaps_between(finding);
  for (const StageView& stage : finding.stages) {
    const std::map<uint32_t, HostGaps>::iterator mine = idle.find(stage.stage);
    if (mine == idle.end() || stage.whole()) continue;
    const double before_ns = mine->second.within_ns + mine->second.outside_ns;
    const double of_all_ns = stage.wall_ns() + mine->second.outside_ns;
    if (stage.consequence.share(before_ns * stage.wall_ns() / of_all_ns, stage.wall_ns()) < kPreparingShareMin)
      continue;
    add_gaps_before(finding, stage, mine->second);
    idle.erase(mine);
  }
  HostGaps rest;
  std::vector<uint32_t> stages;
  for (const auto& [stage, gaps] : idle) rest.add(gaps), stages.push_back(stage);
  if (rest.count == 0 || rest.whole_ns < kPreparingShareMin * finding.window_ns) return;
  Finding& out = finding.add("host-preprocessing", nullptr,
                             fmt::format("the GPU waits {} of the time for host code between steps",
                                         format_percent(rest.whole_ns / finding.window_ns)),
                             rest.whole_ns);
  for (const StageView& stage : finding.stages)
    if (finding.preparation(stage.stage) == nullptr && idle.count(stage.stage) > 0)
      finding.raise(stage.stage, stage.host.boundary_ns, out);
  add_places_between(finding, stages, 0, out);
  explain(rest, out);
}

// Only recorded Python frames can tell tokenising and image processing from any other wait.
void find_preparing_functions(const FindingContext& finding) {
  constexpr size_t kSitesMost = 5;
  const PythonIdle idle = idle_behind(finding, prepares_inputs);
  std::vector<std::pair<double, StringId>> sites;
  double recorded_ns = 0;
  for (const auto& [name, site_ns] : idle.sites_ns) {
    sites.emplace_back(site_ns, name);
    recorded_ns += site_ns;
  }
  std::stable_sort(sites.begin(), sites.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  Finding& out = finding.add("host-preprocessing", nullptr,
                             fmt::format("the GPU waits {} of the time for tokenising or image processing",
                                         format_percent(idle.whole_ns / finding.window_ns)),
                             idle.whole_ns);
  for (const auto& [stage, ns] : idle.stages_ns) finding.raise(stage, ns, out);
  out.evidence = {measured("such idle time, recorded", recorded_ns / 1e6, Unit::kMs)};
  double rest_ns = recorded_ns;
  for (size_t i = 0; i < std::min(kSitesMost, sites.size()); ++i) {
    out.evidence.push_back(measured("of it while the host was in " + std::string(finding.trace().text(sites[i].second)),
                                    sites[i].first / 1e6, Unit::kMs));
    rest_ns -= sites[i].first;
  }
  if (sites.size() > kSitesMost)
    out.evidence.push_back(
        measured(fmt::format("of it in {} other functions", sites.size() - kSitesMost), rest_ns / 1e6, Unit::kMs));
  out.advice = {
      "Prepare inputs in other processes while the GPU serves earlier requests, use the compiled tokeniser, "
      "and resize images on the GPU."};
}

}  // namespace

void find_host_preprocessing(const FindingContext& finding) {
  find_preparations(finding);
  if (on_cpu(finding.context)) return;
  if (finding.between) {
    find_host_between_steps(finding);
  } else if (finding.preparing) {
    find_preparing_functions(finding);
  }
}

// What the program waits for is not recorded, nor whether there was work: so much and where is all that can be said.
void find_no_input(const FindingContext& finding) {
  constexpr double kWaitedShareMin = 0.10;
  const NoInput no_input(finding.trace());
  if (no_input.empty()) return;
  const HostPlaces& places = finding.trace().host_places;
  for (const StageView& stage : finding.stages) {
    const double wait_ns = stage.idle_ns(IdleCause::kNoInput);
    if (wait_ns < kWaitedShareMin * stage.own_ns()) continue;
    Finding& out =
        finding.add("no-input", &stage,
                    fmt::format("{}the program waits {} of the time for something that is no GPU, and uses no "
                                "CPU meanwhile",
                                stage.label(), format_percent(wait_ns / stage.wall_ns())),
                    wait_ns);
    out.evidence = {
        measured("idle per step in which no thread of the program ran", stage.per_step_ms(wait_ns), Unit::kMs)};
    LongestCode waits(finding.trace());
    for (Row row = 0; row < places.size(); ++row) {
      const int64_t start_ns = places.start_ns[row], end_ns = start_ns + places.dur_ns[row];
      if (places.kind[row] == PlaceKind::kHostCode && no_input.holds(places.thread[row], start_ns, end_ns) &&
          stage_behind(finding, end_ns) == stage.stage)
        waits.add(row);
    }
    waits.add_to(out, stage.count());
    out.advice = {"If it waits for requests there, nothing is lost, and more of them cost little.",
                  "If steps were to be done: look for sleeps, timeouts of queues, locks and answers of other processes "
                  "before this "
                  "code, and let the work that is there go on meanwhile."};
    out.bound = stage.bound_of_waiting(wait_ns);
  }
}

}  // namespace llmprof
