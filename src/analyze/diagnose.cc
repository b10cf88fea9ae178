// Runs the rules, one after the other, and puts the findings in order of what they can bring.
#include <algorithm>
#include <array>
#include <map>

#include "analyze/finding.h"
#include "analyze/processor.h"
#include "derive/host_calls.h"
#include "derive/steps.h"

namespace llmprof {

const char* name_of(FindingSeverity severity) {
  switch (severity) {
    case FindingSeverity::kInfo:
      return "info";
    case FindingSeverity::kMinor:
      return "minor";
    case FindingSeverity::kMajor:
      return "major";
    case FindingSeverity::kCritical:
      return "critical";
  }
  return "info";
}

FindingSeverity severity_of(double gain_frac) {
  if (gain_frac >= 0.30) return FindingSeverity::kCritical;
  if (gain_frac >= 0.10) return FindingSeverity::kMajor;
  if (gain_frac >= 0.03) return FindingSeverity::kMinor;
  return FindingSeverity::kInfo;
}

int64_t StageView::host_idle_ns() const {
  return group->idle_of(IdleCause::kLaunchCall) + group->idle_of(IdleCause::kOperatorDispatch) +
         group->idle_of(IdleCause::kHostWork) + group->idle_of(IdleCause::kLaunchLatency) +
         group->idle_of(IdleCause::kOtherApi);
}

std::string StageView::time_metric() const {
  if (group->kind == StageKind::kDecode) return "TPOT (ms)";
  if (group->kind == StageKind::kPrefill) return "TTFT (ms)";
  return "time per step (ms)";
}

Finding& FindingContext::add(std::string_view id, const StageView* stage, std::string title, double gain_ns,
                             FindingSeverity cap) const {
  if (stage != nullptr) gain_ns = whole_ns(stage->stage, gain_ns);
  Finding& finding = out->emplace_back();
  finding.id = id;
  finding.stage = stage != nullptr ? stage->timing->name : "all";
  finding.title = std::move(title);
  finding.gain_ns = gain_ns;
  finding.severity = std::min(cap, severity_of(window_ns > 0 ? gain_ns / window_ns : 0));
  return finding;
}

namespace {

// Reads a JSON list of dimensions such as [[[1,8,512,128],[1,8,1,128]],[]] and tells whether it appends a few tokens
// to a cache: two tensors of equal rank >= 3 that differ in one dimension only, the first at least 8 times longer.
bool appends_to_cache(std::string_view dims) {
  if (dims.size() > 4096) return false;
  std::vector<std::vector<int64_t>> lists;
  size_t depth = 0;
  int64_t number = -1;
  const auto flush = [&] {
    if (number >= 0 && !lists.empty()) lists.back().push_back(number);
    number = -1;
  };
  for (const char c : dims) {
    if (c == '[') {
      if (++depth >= 3) lists.emplace_back();
    } else if (c == ']') {
      flush();
      if (depth == 0) return false;
      --depth;
    } else if (c >= '0' && c <= '9') {
      if (number > INT32_MAX) return false;
      number = (number < 0 ? 0 : number) * 10 + (c - '0');
    } else {
      flush();
    }
  }
  if (lists.size() != 2 || lists[0].size() != lists[1].size() || lists[0].size() < 3) return false;
  size_t different = 0;
  bool grows = false;
  for (size_t d = 0; d < lists[0].size(); ++d) {
    if (lists[0][d] == lists[1][d]) continue;
    ++different;
    grows = lists[1][d] > 0 && lists[0][d] >= 8 * lists[1][d];
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
    const Row op = trace.gpu_links.op[g];
    if (op == kNoRow || trace.ops.name[op] != cat || trace.ops.signature[op] == kNoRow) continue;
    uint8_t& verdict = verdicts[trace.ops.signature[op]];
    if (verdict == kUnseen)
      verdict = appends_to_cache(trace.text(trace.signatures.dims[trace.ops.signature[op]])) ? kYes : kNo;
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
    const Row work = finding.key(k).work;
    if (work == kNoRow || works.kind[work] != WorkKind::kGemm) continue;
    most = std::max(
        most, 4.0 * static_cast<double>(works.m[work]) * static_cast<double>(std::max(works.n[work], works.k[work])));
  }
  return most;
}

// Without shapes of operators a concatenation copies the cache if it takes so long that, at half the memory's
// bandwidth, it moves many times what the step's activations hold; or if it takes longer from step to step, because it
// copies what has grown (enough steps, a rank correlation with the step's number, and growth that is no noise).
void add_growing_copies(const FindingContext& finding, std::vector<StageView*>& by_stage) {
  constexpr size_t kStepsMin = 8;
  constexpr double kRankCorrelationMin = 0.8, kGrowthMin = 1.1;
  const Trace& trace = finding.trace();
  std::map<uint32_t, std::map<Row, std::pair<int64_t, int64_t>>> by_step;  // stage -> step -> time, count
  std::vector<uint8_t> verdicts(trace.strings.size());                     // 0 unseen, 1 a concatenation, 2 not
  for (Row g = 0; g < trace.gpu_ops.size(); ++g) {
    uint8_t& verdict = verdicts[index(trace.gpu_ops.name[g])];
    if (verdict == 0)
      verdict = trace.text(trace.gpu_ops.name[g]).find("CatArrayBatchedCopy") != std::string_view::npos ? 1 : 2;
    const Row step = trace.gpu_links.step[g];
    if (verdict != 1 || step == kNoRow || trace.steps.kind[step] != StageKind::kDecode) continue;
    std::pair<int64_t, int64_t>& sums = by_step[finding.context.groups.stage_of_step[step]][step];
    sums.first += trace.gpu_ops.dur_ns[g];
    ++sums.second;
  }
  for (const auto& [stage, steps] : by_step) {
    if (steps.size() < kStepsMin || by_stage[stage] == nullptr) continue;
    std::vector<double> times;
    int64_t total_ns = 0, count = 0;
    for (const auto& [step, sums] : steps) {
      times.push_back(static_cast<double>(sums.first));
      total_ns += sums.first;
      count += sums.second;
    }
    // Spearman: correlation of the ranks with 0, 1, 2, ...
    std::vector<size_t> order(times.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return times[a] < times[b]; });
    double squares = 0;
    for (size_t rank = 0; rank < order.size(); ++rank) {
      const double apart = static_cast<double>(rank) - static_cast<double>(order[rank]);
      squares += apart * apart;
    }
    const double n = static_cast<double>(times.size());
    const double correlation = 1 - 6 * squares / (n * (n * n - 1));
    const size_t quarter = times.size() / 4;
    double early = 0, late = 0;
    for (size_t i = 0; i < quarter; ++i) {
      early += times[i];
      late += times[times.size() - 1 - i];
    }
    const bool grows = correlation >= kRankCorrelationMin && late >= kGrowthMin * early;
    const DeviceReport* device = finding.context.device;
    const double activations = activation_bytes(finding, *by_stage[stage]);
    const double moved =
        device != nullptr && device->roof_bytes_per_s()
            ? static_cast<double>(total_ns) / static_cast<double>(count) / 1e9 * *device->roof_bytes_per_s() / 2
            : 0;
    constexpr double kOverActivations = 8;
    if (!grows && (activations <= 0 || moved < kOverActivations * activations)) continue;
    by_stage[stage]->kv_copy_ns = total_ns;
    by_stage[stage]->kv_copies = count;
  }
}

// Gaps that begin while the host waits for the GPU in a blocking call: had it not waited, the next launch would have
// been queued. Longer ones than kLongGapNs are host code, whatever came before them.
void add_gaps_after_syncs(const FindingContext& finding, std::vector<StageView*>& by_stage) {
  constexpr int64_t kClockSlackNs = 5'000;
  const Trace& trace = finding.trace();
  const Gaps& gaps = trace.gaps;
  const HostCalls calls(trace);
  for (Row first = 0, last = 0; first < gaps.size(); first = last) {
    const Row next = gaps.next_gpu_op[first];
    int64_t end = gaps.start_ns[first];
    while (last < gaps.size() && gaps.device[last] == gaps.device[first] && gaps.next_gpu_op[last] == next &&
           gaps.start_ns[last] == end) {
      end += gaps.dur_ns[last];
      ++last;
    }
    const int64_t start = gaps.start_ns[first];
    const Row api = next != kNoRow ? trace.gpu_links.api[next] : kNoRow;
    if (api == kNoRow || end - start >= kLongGapNs) continue;
    const BlockingCall* call = calls.last_blocking_before(trace.api_calls.thread[api], trace.api_calls.start_ns[api]);
    if (call == nullptr || call->start_ns > start + kClockSlackNs || call->end_ns < start - kClockSlackNs) continue;
    bool counted = false;
    for (Row g = first; g < last; ++g) {
      StageView* stage =
          gaps.step[g] != kNoRow ? by_stage[finding.context.groups.stage_of_step[gaps.step[g]]] : nullptr;
      const bool host = gaps.cause[g] == IdleCause::kHostWork || gaps.cause[g] == IdleCause::kLaunchCall ||
                        gaps.cause[g] == IdleCause::kLaunchLatency || gaps.cause[g] == IdleCause::kOtherApi ||
                        gaps.cause[g] == IdleCause::kOperatorDispatch;
      if (stage == nullptr || !host) continue;
      stage->after_sync_ns += gaps.dur_ns[g];
      if (!counted) ++stage->after_syncs;
      counted = true;
    }
  }
}

void add_host_gaps(const FindingContext& finding, std::vector<StageView*>& by_stage) {
  const Trace& trace = finding.trace();
  const Gaps& gaps = trace.gaps;
  for (Row g = 0; g < gaps.size(); ++g) {
    if (gaps.step[g] == kNoRow || finding.before_serving(gaps.device[g], gaps.start_ns[g])) continue;
    if (gaps.cause[g] != IdleCause::kHostWork && gaps.cause[g] != IdleCause::kOperatorDispatch) continue;
    StageView* stage = by_stage[finding.context.groups.stage_of_step[gaps.step[g]]];
    if (stage == nullptr) continue;
    const bool prepares =
        gaps.python[g] != kNoRow && prepares_inputs(trace.text(trace.python_calls.name[gaps.python[g]]));
    const bool is_long = gaps.dur_ns[g] >= kLongGapNs;
    if (prepares) stage->prepare_ns += gaps.dur_ns[g];
    if (!is_long) continue;
    if (prepares) {
      stage->long_prepare_ns += gaps.dur_ns[g];
      ++stage->long_prepare_gaps;
    }
    stage->long_host_ns += gaps.dur_ns[g];
    ++stage->long_host_gaps;
    const Row next = gaps.next_gpu_op[g];
    if (next == kNoRow || trace.gpu_ops.start_ns[next] != trace.steps.gpu_start_ns[gaps.step[g]]) continue;
    stage->boundary_ns += gaps.dur_ns[g];
    ++stage->boundary_gaps;
  }
}

}  // namespace

bool prepares_inputs(std::string_view python_name) {
  for (const std::string_view part : {"tokeniz", "image_process", "processing_"})
    if (python_name.find(part) != std::string_view::npos) return true;
  return false;
}

FindingContext make_finding_context(const Context& context, const Report& report, std::vector<Finding>& out) {
  FindingContext finding{context, report, {}, 0, {}, &out};
  const Groups& groups = context.groups;
  for (const Window& window : context.trace.windows)
    finding.window_ns += static_cast<double>(window.end_ns - window.start_ns);
  finding.serving_from_ns = serving_starts(context.trace.steps);
  // The report's rows stand in the order of the groups; empty unattributed ones are left out.
  size_t row = 0;
  std::vector<size_t> view_of(groups.stages.size(), SIZE_MAX);
  for (uint32_t s = 0; s < groups.stages.size() && row < report.stages.size(); ++s) {
    const StageGroup& group = groups.stages[s];
    if (report.stages[row].device != group.device || report.stages[row].name != stage_name(context.trace, groups, s))
      continue;
    const StageTiming& timing = report.stages[row++];
    if (group.unattributed || timing.wall_ms.ns <= 0 || timing.gpu_busy_ms.ns <= 0 || group.missing == 2) continue;
    if (is_warm_up(context.trace.text(group.name))) continue;
    StageView& view = finding.stages.emplace_back();
    view_of[s] = finding.stages.size() - 1;
    view.stage = s;
    view.group = &group;
    view.timing = &timing;
    for (const Row step : group.steps) view.least_gpu += groups.least_gpu_ns[step];
  }
  std::vector<StageView*> by_stage(groups.stages.size(), nullptr);
  for (size_t s = 0; s < view_of.size(); ++s)
    if (view_of[s] != SIZE_MAX) by_stage[s] = &finding.stages[view_of[s]];
  for (uint32_t k = 0; k < groups.kernels.size(); ++k)
    if (StageView* view = by_stage[groups.kernel_keys.key(k).stage]; view != nullptr) view->kernels.push_back(k);
  for (const CategoryRecord& category : report.categories)
    for (StageView& view : finding.stages)
      if (view.timing->name == category.stage && view.timing->device == category.device)
        view.categories.push_back(category);
  add_cache_copies(finding, by_stage);
  if (finding.live()) {
    if (context.trace.ops.empty()) add_growing_copies(finding, by_stage);
    add_gaps_after_syncs(finding, by_stage);
  }
  add_host_gaps(finding, by_stage);
  return finding;
}

// Rules that hold where the program ran its model on the CPU: nothing is launched there, and there are no thread
// blocks, tensor cores or copies to a device. What these rules say, they say with processor().
bool holds_on_cpu(std::string_view rule) {
  constexpr std::array<std::string_view, 5> kRules{"memory-bound-weights", "memory-bound-kv", "compute-bound",
                                                   "logits-all-tokens", "kv-cache-copy"};
  return std::find(kRules.begin(), kRules.end(), rule) != kRules.end();
}

void diagnose(const Context& context, Report& report, std::vector<CannotTell>& cannot_tell) {
  std::vector<Finding> found;
  const FindingContext finding = make_finding_context(context, report, found);
  const bool cpu = on_cpu(context);
  for (const FindingRule& rule : finding_rules())
    if (rule.look != nullptr && (!cpu || holds_on_cpu(rule.id))) rule.look(finding);
  // Ranks of one process repeat each other: the same finding on the same stage is told once, the largest.
  std::stable_sort(found.begin(), found.end(), [](const Finding& a, const Finding& b) {
    return a.severity != b.severity ? a.severity > b.severity : a.gain_ns > b.gain_ns;
  });
  for (Finding& candidate : found) {
    const bool told = std::any_of(report.findings.begin(), report.findings.end(), [&](const Finding& other) {
      return other.id == candidate.id && other.stage == candidate.stage;
    });
    if (!told) report.findings.push_back(std::move(candidate));
  }
  bool comm = false, routing = false, graphs = false;
  for (const CategoryRecord& row : report.categories) {
    comm |= row.category == category_name(Category::kCommunication);
    routing |= row.category == category_name(Category::kMoeRouting);
  }
  for (const StageView& stage : finding.stages) {
    bool told = false;
    for (const Row step : stage.group->steps)
      told |= context.trace.steps.annotation[step] != kNoRow && context.trace.steps.gemm_rows[step] > 0 &&
              context.trace.steps.new_tokens[step] > 0;
    graphs |= stage.graph_replay() && !told;
  }
  if (comm)
    cannot_tell.push_back({"Do some ranks wait for others (rank-skew)?", "the recording holds one rank",
                           "record every rank and compare their communication times"});
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
