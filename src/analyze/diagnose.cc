// Runs the rules, one after the other, and puts the findings in order of what they can bring.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "analyze/finding.h"
#include "analyze/kernel_times.h"
#include "analyze/processor.h"
#include "analyze/rank_names.h"
#include "analyze/requests.h"
#include "derive/steps.h"
#include "replay/meetings.h"
#include "trace/signature.h"

namespace llmprof {

FindingSeverity severity_of(double gain_frac) {
  if (gain_frac >= 0.30) return FindingSeverity::kCritical;
  if (gain_frac >= 0.10) return FindingSeverity::kMajor;
  if (gain_frac >= 0.03) return FindingSeverity::kMinor;
  return FindingSeverity::kInfo;
}

namespace {

// The share from which a severity would be higher.
double least_share_above(FindingSeverity severity) {
  switch (severity) {
    case FindingSeverity::kInfo:
      return 0.03;
    case FindingSeverity::kMinor:
      return 0.10;
    case FindingSeverity::kMajor:
      return 0.30;
    case FindingSeverity::kCritical:
      break;
  }
  return 1;
}

}  // namespace

FindingSeverity severity_for(const StageConsequence& consequence, double share) {
  return severity_of(share * consequence.of_request);
}

double order_share(const StageConsequence& consequence, double share, FindingSeverity most) {
  return std::min(share, least_share_above(most)) * consequence.of_request;
}

void FindingContext::raise(uint32_t stage, double gain_ns, Finding& finding) const {
  for (const StageView& view : stages) {
    if (view.stage != stage) continue;
    const double share = view.consequence.share(gain_ns, view.wall_ns());
    finding.share = std::max(finding.share, share * view.consequence.of_request);
    finding.severity = std::max(finding.severity, severity_for(view.consequence, share));
  }
}

Finding& FindingContext::add(std::string_view id, const StageView* stage, std::string title, double gain_ns) const {
  const FindingSeverity most = finding_rule(id).most;
  Finding& finding = out->emplace_back();
  finding.id = id;
  finding.stage = stage != nullptr && !stage->whole() ? stage->timing->name : "all";
  if (stage != nullptr) finding.device = stage->timing->device;
  finding.title = std::move(title);
  if (stage == nullptr) {
    finding.gain_ns = gain_ns;
    finding.share = window_ns > 0 ? gain_ns / window_ns : 0;
    finding.severity = std::min(most, severity_of(finding.share));
    return finding;
  }
  const StageConsequence& consequence = stage->consequence;
  const double share = consequence.share(gain_ns, stage->wall_ns());
  finding.gain_ns = whole_ns(stage->stage, gain_ns);
  finding.share = order_share(consequence, share, most);
  finding.severity = std::min(most, severity_for(consequence, share));
  return finding;
}

namespace {

// Whether inputs such as [[[1,8,512,128],[1,8,1,128]],[]] append a few tokens to a cache: two tensors of equal rank >=
// 3 that differ in one dimension only, the first at least 8 times longer.
bool appends_to_cache(const SignatureShapes& shapes) {
  const std::vector<Shape> joined = shapes.tensors(0);
  if (joined.size() != 2 || joined[0].rank != joined[1].rank || joined[0].rank < 3) return false;
  int different = 0;
  bool grows = false;
  for (int d = 0; d < joined[0].rank; ++d) {
    const int64_t before = joined[0][d], added = joined[1][d];
    if (before == added) continue;
    ++different;
    grows = added > 0 && before / 8 >= added;
  }
  return different == 1 && grows;
}

// GPU activities of operators that append to a cache by copying it.
void add_cache_copies(const FindingContext& finding, std::vector<StageView*>& by_stage) {
  const Trace& trace = finding.trace();
  const StringId cat = trace.strings.find("aten::cat");
  if (cat == StringId::kEmpty) return;
  enum : uint8_t { kUnseen, kYes, kNo };
  std::vector<uint8_t> verdicts(trace.signatures.size());
  for (Row g = 0; g < trace.gpu_ops.size(); ++g) {
    const OpId op = trace.gpu_links.op[g];
    if (op == kNoRow || trace.ops.name[op] != cat || trace.ops.signature[op] == kNoRow) continue;
    uint8_t& verdict = verdicts[trace.ops.signature[op]];
    if (verdict == kUnseen) verdict = appends_to_cache(SignatureShapes(trace, trace.ops.signature[op])) ? kYes : kNo;
    StageView* stage = by_stage[finding.key(finding.context.groups.kernel_of[g]).stage];
    if (verdict == kNo || stage == nullptr) continue;
    stage->kv_copy_ns += trace.gpu_ops.dur_ns[g];
    ++stage->kv_copies;
  }
}

// The bytes that a stage's activations have at most: rows times the widest output of its GEMMs, 4 bytes each.
double activation_bytes(const FindingContext& finding, const StageView& stage) {
  const Works& works = finding.trace().works;
  double most = 0;
  for (const uint32_t k : stage.kernels) {
    const WorkId work = finding.key(k).work;
    if (work == kNoRow || works.kind[work] != WorkKind::kGemm) continue;
    most = std::max(
        most, 4.0 * static_cast<double>(works.m[work]) * static_cast<double>(std::max(works.n[work], works.k[work])));
  }
  return most;
}

// Concatenations of one kernel in one step.
struct CatSums {
  int64_t time_ns = 0, count = 0;
  double blocks = 0;  // of their grids
};

// Whether the values, in the order of the context they belong to, grow: a rank correlation (Spearman) with that order,
// and the last quarter above the first.
bool grows(const std::vector<double>& values, double growth_min) {
  constexpr double kRankCorrelationMin = 0.8;
  std::vector<size_t> order(values.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return values[a] < values[b]; });
  double squares = 0;
  for (size_t rank = 0; rank < order.size(); ++rank) {
    const double apart = static_cast<double>(rank) - static_cast<double>(order[rank]);
    squares += apart * apart;
  }
  const double n = static_cast<double>(values.size());
  const size_t quarter = values.size() / 4;
  double early = 0, late = 0;
  for (size_t i = 0; i < quarter; ++i) {
    early += values[i];
    late += values[values.size() - 1 - i];
  }
  return 1 - 6 * squares / (n * (n * n - 1)) >= kRankCorrelationMin && late > early && late >= growth_min * early;
}

// Without shapes of operators a concatenation copies the cache if it takes so long that, at half the memory's
// bandwidth, it moves many times what the step's activations hold; or if its time or its grid grows with the context,
// because it copies what has grown. Each kernel is judged by itself: rotary embeddings concatenate too, always as much.
// A short kernel takes its fixed cost whatever it moves.
void add_growing_copies(const FindingContext& finding, std::vector<StageView*>& by_stage) {
  constexpr size_t kStepsMin = 8;
  constexpr double kGrowthMin = 1.1, kOverActivations = 8;
  const Trace& trace = finding.trace();
  const LaunchConfigs& configs = trace.launch_configs;
  std::map<std::pair<uint32_t, StringId>, std::map<Row, CatSums>> kernels;  // stage and name -> step
  std::vector<uint8_t> verdicts(trace.strings.size());                      // 0 unseen, 1 a concatenation, 2 not
  for (Row g = 0; g < trace.gpu_ops.size(); ++g) {
    const StringId name = trace.gpu_ops.name[g];
    uint8_t& verdict = verdicts[index(name)];
    if (verdict == 0) verdict = concatenates(trace.text(name)) ? 1 : 2;
    const StepId step = trace.gpu_links.step[g];
    if (verdict != 1 || step == kNoRow || trace.steps.kind[step] != StageKind::kDecode) continue;
    CatSums& sums = kernels[{finding.context.groups.stage_of_step[step], name}][step];
    sums.time_ns += trace.gpu_ops.dur_ns[g];
    ++sums.count;
    if (const LaunchConfigId config = trace.gpu_ops.config[g]; config != kNoRow)
      sums.blocks += static_cast<double>(configs.grid_x[config]) * configs.grid_y[config] * configs.grid_z[config];
  }
  for (const auto& [kernel, by_step] : kernels) {
    StageView* stage = by_stage[kernel.first];
    if (by_step.size() < kStepsMin || stage == nullptr) continue;
    // By context where it is known, else in the order of time.
    std::vector<std::pair<int64_t, const CatSums*>> steps;
    for (const auto& [step, sums] : by_step) steps.emplace_back(trace.steps.context[step], &sums);
    std::stable_sort(steps.begin(), steps.end(), [](const auto& x, const auto& y) { return x.first < y.first; });
    std::vector<double> times, blocks;
    int64_t total_ns = 0, count = 0;
    for (const auto& [context, sums] : steps) {
      times.push_back(static_cast<double>(sums->time_ns));
      blocks.push_back(sums->blocks);
      total_ns += sums->time_ns;
      count += sums->count;
    }
    const double mean_ns = static_cast<double>(total_ns) / static_cast<double>(count);
    const DeviceReport* device = finding.context.device;
    const double activations = activation_bytes(finding, *stage);
    const bool moves_more = device != nullptr && device->roof_bytes_per_s() && activations > 0 &&
                            mean_ns >= kShortKernelNs &&
                            mean_ns / 1e9 * *device->roof_bytes_per_s() / 2 >= kOverActivations * activations;
    if (!grows(times, kGrowthMin) && !grows(blocks, 1) && !moves_more) continue;
    stage->kv_copy_ns += total_ns;
    stage->kv_copies += count;
  }
}

}  // namespace

namespace {

// The report's rows stand in the order of the groups; empty unattributed ones are left out. By group, null for none.
std::vector<const StageTiming*> timings_of(const Context& context, const Report& report) {
  const Groups& groups = context.groups;
  std::vector<const StageTiming*> out(groups.stages.size(), nullptr);
  size_t row = 0;
  for (uint32_t s = 0; s < groups.stages.size() && row < report.stages.size(); ++s)
    if (report.stages[row].device == groups.stages[s].device &&
        report.stages[row].name == stage_name(context.trace, groups, s))
      out[s] = &report.stages[row++];
  return out;
}

std::vector<uint8_t> typical_steps(const Trace& trace) {
  std::vector<uint8_t> out(trace.steps.size(), 0);
  for (const Window& window : trace.windows) {
    const Requests requests = find_requests(trace, window.device);
    for (const Row s : requests.typical_steps(trace.steps)) out[s] = 1;
    for (const RequestTimes* prompt : requests.typical_prompts())
      for (const Row s : prompt->before_token) out[s] = 1;
  }
  return out;
}

// Whether most of the GPU's work on the device lies in the group.
bool holds_most(const Groups& groups, uint32_t stage) {
  int64_t all_ns = 0;
  for (const StageGroup& group : groups.stages)
    if (group.device == groups.stages[stage].device) all_ns += group.busy_ns;
  return groups.stages[stage].busy_ns * 2 > all_ns;
}

}  // namespace

std::vector<const StageView*> FindingContext::with_unstaged() const {
  std::vector<const StageView*> all;
  for (const StageView& view : stages) all.push_back(&view);
  for (const StageView& view : unstaged) all.push_back(&view);
  return all;
}

const StageView* FindingContext::preparation(uint32_t stage) const {
  for (const StageView& view : preparations)
    if (view.stage == stage) return &view;
  return nullptr;
}

FindingContext make_finding_context(const Context& context, const Report& report, std::vector<Finding>& out) {
  FindingContext finding{
      context, report, {}, {}, {}, 0, {}, typical_steps(context.trace), places_of_stages(context.trace, context.groups),
      {},      &out};
  const Groups& groups = context.groups;
  const std::vector<StageConsequence> consequences = stage_consequences(context, report);
  for (const Window& window : context.trace.windows)
    finding.window_ns += static_cast<double>(window.end_ns - window.start_ns);
  finding.serving_from_ns = serving_starts(context.trace.steps);
  const std::vector<const StageTiming*> timings = timings_of(context, report);
  std::vector<size_t> view_of(groups.stages.size(), SIZE_MAX);
  for (uint32_t s = 0; s < groups.stages.size(); ++s) {
    const StageGroup& group = groups.stages[s];
    if (timings[s] == nullptr || timings[s]->wall_ms.ns <= 0 || timings[s]->gpu_busy_ms.ns <= 0) continue;
    if (group.missing == MissingKernels::kAll || group.is_warm_up()) continue;
    if (group.unattributed && !holds_most(groups, s)) continue;
    std::vector<StageView>& views = group.unattributed ? finding.unstaged : finding.stages;
    StageView& view = views.emplace_back();
    if (!group.unattributed) view_of[s] = finding.stages.size() - 1;
    view.stage = s;
    view.group = &group;
    view.timing = timings[s];
    view.consequence = consequences[s];
    fill_sums(context, view);
  }
  std::vector<StageView*> by_stage(groups.stages.size(), nullptr), with_unstaged;
  for (size_t s = 0; s < view_of.size(); ++s)
    if (view_of[s] != SIZE_MAX) by_stage[s] = &finding.stages[view_of[s]];
  with_unstaged = by_stage;
  for (StageView& view : finding.unstaged) with_unstaged[view.stage] = &view;
  for (uint32_t k = 0; k < groups.kernels.size(); ++k)
    if (StageView* view = with_unstaged[groups.kernel_keys.key(k).stage]; view != nullptr) view->kernels.push_back(k);
  add_preparations(consequences, finding);
  add_cache_copies(finding, by_stage);
  if (finding.live() && context.trace.ops.empty()) add_growing_copies(finding, by_stage);
  add_host_idle(finding, by_stage);
  return finding;
}

void diagnose(const Context& context, Report& report, std::vector<CannotTell>& cannot_tell) {
  std::vector<Finding> found;
  Simulation simulation(context);
  FindingContext finding = make_finding_context(context, report, found);
  // What another tool's recording cost is not known, and a change would take that away too.
  if (finding.live()) finding.simulation = &simulation;
  const bool cpu = on_cpu(context);
  for (const FindingRule& rule : finding_rules())
    if (rule.find != nullptr && (!cpu || rule.on_cpu)) rule.find(finding);
  simulate_findings(finding, found);
  // Ranks of one process repeat each other: the same finding on the same stage is told once, the largest.
  std::stable_sort(found.begin(), found.end(), [](const Finding& a, const Finding& b) {
    // What comes once a start is no change to begin with, however short the run was.
    const bool once_a = a.id == "first-call-cost", once_b = b.id == "first-call-cost";
    if (once_a != once_b) return once_b;
    if (a.share != b.share) return a.share > b.share;
    if (a.severity != b.severity) return a.severity > b.severity;
    return a.gain && b.gain && a.gain->method > b.gain->method;  // replay before formula
  });
  for (Finding& candidate : found) {
    const bool said = std::any_of(report.findings.begin(), report.findings.end(), [&](const Finding& other) {
      return other.id == candidate.id && other.stage == candidate.stage;
    });
    if (said) continue;
    if (const Row rank = rank_row(context.trace, candidate.device); rank != kNoRow && candidate.id != "rank-skew")
      candidate.title = fmt::format("rank {}, {}", context.trace.ranks.rank[rank], candidate.title);
    report.findings.push_back(std::move(candidate));
  }
  bool comm = false, routing = false, graphs = false;
  for (const CategoryRecord& row : report.categories) {
    comm |= row.category == category_name(Category::kCommunication);
    routing |= row.category == category_name(Category::kMoeRouting);
  }
  for (const StageView& stage : finding.stages) {
    bool known = std::any_of(report.findings.begin(), report.findings.end(), [&](const Finding& one) {
      return one.id == "padded-batch" && one.stage == stage.timing->name;
    });
    for (const StepId step : stage.group->steps)
      known |= context.trace.steps.annotation[step] != kNoRow && context.trace.steps.gemm_rows[step] > 0 &&
               context.trace.steps.new_tokens[step] > 0;
    graphs |= stage.graph_replay() && !known;
  }
  if (comm && replay::find_meetings(context.trace).empty())
    cannot_tell.push_back(
        {"Do some ranks wait for others (rank-skew)?",
         context.trace.windows.size() < 2 ? "the recording holds one rank"
                                          : "its GPUs communicate in groups, or not at the same time",
         "name the recordings of all ranks (llmprof analyze RANK0 RANK1 ...), or record every rank of "
         "one group (llmprof run -- torchrun ...)"});
  if (routing)
    cannot_tell.push_back({"Are the experts loaded unevenly (moe-imbalance)?",
                           "the recording does not say how many tokens each expert received",
                           "log the router's token counts per expert"});
  if (graphs)
    cannot_tell.push_back({"Do CUDA graphs run padded batches (graph-padding)?",
                           "a replay does not record how many of its sequences are real",
                           "compare the server's running batch sizes with its capture sizes"});
}

}  // namespace llmprof
