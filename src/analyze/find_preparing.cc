// Host work that prepares inputs while the model waits: stages of the program that do nothing else, gaps before and
// between steps, Python functions that tokenise or process images.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "analyze/finding.h"
#include "analyze/processor.h"
#include "base/text_table.h"

namespace llmprof {
namespace {

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
struct BetweenSteps {
  std::map<uint32_t, double> before_ns;  // by the stage of the step behind it: of steps, and outside every step
  std::map<uint32_t, double> beyond_ns;  // the latter alone
  double within_ns = 0;                  // before the first activity of steps
  double outside_ns = 0;                 // outside every step
  double alone_ns = 0;                   // in stages of the program that launch nothing
  double whole_ns = 0;                   // all of it, of the whole recording
  int64_t count = 0;
  double recorded_ns() const { return within_ns + outside_ns + alone_ns; }
};

BetweenSteps between_steps(const FindingContext& finding) {
  const Trace& trace = finding.trace();
  const Gaps& gaps = trace.gaps;
  const Groups& groups = finding.context.groups;
  BetweenSteps out;
  for (const StageView& stage : finding.stages) {
    if (finding.preparation(stage.stage) != nullptr) continue;
    out.within_ns += stage.host.boundary_ns;
    out.before_ns[stage.stage] += stage.host.boundary_ns;
    out.whole_ns += finding.whole_ns(stage.stage, stage.host.boundary_ns);
    out.count += stage.host.boundary_gaps;
  }
  for (Row g = 0; g < gaps.size(); ++g) {
    if (gaps.dur_ns[g] < kLongGapNs || finding.before_serving(gaps.device[g], gaps.start_ns[g])) continue;
    const double gap_ns = static_cast<double>(gaps.dur_ns[g]);
    const uint32_t stage =
        gaps.step[g] != kNoRow ? groups.stage_of_step[gaps.step[g]] : groups.unattributed(gaps.device[g]);
    if (groups.stages[stage].is_warm_up()) continue;
    if (gaps.cause[g] == IdleCause::kHostWork && gaps.step[g] != kNoRow && groups.stages[stage].gpu_ops == 0 &&
        finding.preparation(stage) == nullptr) {
      out.alone_ns += gap_ns;
    } else if (gaps.cause[g] == IdleCause::kNoWork && gaps.next_gpu_op[g] != kNoRow) {
      // Between two steps: before the first one the program starts, after the last one it ends.
      const bool before_step = trace.gpu_links.step[gaps.next_gpu_op[g]] != kNoRow;
      const bool first = trace.steps.empty() || gaps.start_ns[g] < trace.steps.start_ns[0];
      if (!before_step || first) continue;
      out.outside_ns += gap_ns;
      const uint32_t behind = groups.stage_of_step[trace.gpu_links.step[gaps.next_gpu_op[g]]];
      out.before_ns[behind] += gap_ns;
      out.beyond_ns[behind] += gap_ns;
    } else {
      continue;
    }
    out.whole_ns += finding.whole_ns(stage, gap_ns);
    ++out.count;
  }
  return out;
}

// The Python code that calls CUDA behind the longest stretches of host code between its calls: where those end.
void add_places_between(const FindingContext& finding, double steps, Finding& out) {
  constexpr size_t kPlacesMost = 2;
  const HostPlaces& places = finding.trace().host_places;
  std::map<std::string, std::pair<int64_t, int64_t>> sums;  // length and number
  for (Row row = 0; row < places.size(); ++row) {
    if (places.kind[row] != PlaceKind::kHostCode || places.dur_ns[row] < kLongGapNs) continue;
    const std::map<int32_t, int64_t>& from = finding.serving_from_ns;
    const bool serves = from.empty() || std::any_of(from.begin(), from.end(), [&](const auto& device) {
                          return places.start_ns[row] >= device.second;
                        });
    if (!serves) continue;
    auto& [ns, count] = sums[python_place(finding.trace().text(places.stack[row]))];
    ns += places.dur_ns[row];
    ++count;
  }
  std::vector<std::pair<std::string, std::pair<int64_t, int64_t>>> longest(sums.begin(), sums.end());
  std::stable_sort(longest.begin(), longest.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  if (longest.size() > kPlacesMost) longest.resize(kPlacesMost);
  for (const auto& [name, sum] : longest)
    out.where.push_back({std::string(kBeforePython), name, static_cast<double>(sum.second) / std::max(1.0, steps)});
}

// The stage before whose steps nearly all of it lies; null if there is none.
const StageView* stage_behind(const FindingContext& finding, const BetweenSteps& idle) {
  constexpr double kNearlyAll = 0.8;
  for (const StageView& stage : finding.stages) {
    const auto mine = idle.before_ns.find(stage.stage);
    if (mine != idle.before_ns.end() && mine->second >= kNearlyAll * idle.recorded_ns()) return &stage;
  }
  return nullptr;
}

// Live recordings without Python frames.
void find_host_between_steps(const FindingContext& finding) {
  const BetweenSteps idle = between_steps(finding);
  double share = idle.whole_ns / std::max(1.0, finding.window_ns);
  for (const StageView& stage : finding.stages)
    if (finding.preparation(stage.stage) == nullptr)
      share = std::max(share, stage.consequence.share(stage.host.boundary_ns, stage.wall_ns()));
  if (idle.count == 0 || share < kPreparingShareMin) return;
  // Where it lies before the steps of one stage, it is a part of what they take.
  const StageView* const behind = stage_behind(finding, idle);
  const auto beyond = behind != nullptr ? idle.beyond_ns.find(behind->stage) : idle.beyond_ns.end();
  const double beyond_ns = beyond != idle.beyond_ns.end() ? beyond->second : 0;
  const double before_ns = behind != nullptr ? idle.before_ns.at(behind->stage) : 0;
  const bool counts_steps = behind != nullptr && beyond_ns * 2 < before_ns;
  const std::string title = behind != nullptr ? fmt::format("{}the GPU waits {} for host code before each step",
                                                            behind->label(), format_ms(behind->per_step_ms(before_ns)))
                                              : fmt::format("the GPU waits {} of the time for host code between steps",
                                                            format_percent(idle.whole_ns / finding.window_ns));
  Finding& out = finding.add("host-preprocessing", counts_steps ? behind : nullptr, title,
                             counts_steps ? before_ns : idle.whole_ns);
  if (counts_steps) {
    out.bound = behind->bound_of_waiting(before_ns);
  } else {
    for (const StageView& stage : finding.stages)
      if (finding.preparation(stage.stage) == nullptr) finding.raise(stage.stage, stage.host.boundary_ns, out);
    if (behind != nullptr) {
      // Of a step and what lies before it.
      const double step_ms = behind->consequence.now_ms, before_ms = behind->per_step_ms(beyond_ns);
      finding.raise(behind->stage, before_ns * behind->wall_ns() / (behind->wall_ns() + before_ns), out);
      out.beyond_steps = true;
      out.bound = GainBound{behind->consequence.metric, step_ms + before_ms, step_ms};
    }
  }
  add_places_between(finding, behind != nullptr ? behind->count() : 0, out);
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

}  // namespace llmprof
