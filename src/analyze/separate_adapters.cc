#include "analyze/separate_adapters.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string_view>

#include "analyze/finding.h"
#include "base/text_table.h"

namespace llmprof {
namespace {

constexpr int64_t kRankMost = 256, kNarrowing = 8;
constexpr size_t kBeside = 8;  // products before and behind, among which the one with the matrix is

bool has(std::string_view name, std::string_view word) { return name.find(word) != std::string_view::npos; }

// Of one stream in one step.
class StreamProducts {
 public:
  StreamProducts(const Context& context, const std::vector<GpuOpId>& ops) : context_(context), ops_(ops) {
    for (size_t at = 0; at < ops.size(); ++at)
      if (is_product(ops[at])) products_.push_back(at);
  }

  void find(std::vector<SeparateAdapter>& out) const {
    for (size_t p = 0; p + 1 < products_.size(); ++p) {
      const WorkId first = work(p), second = work(p + 1);
      const int64_t rank = works().n[first];
      if (works().m[first] != works().m[second] || works().k[second] != rank) continue;
      if (rank > kRankMost || works().k[first] < kNarrowing * rank || works().n[second] < kNarrowing * rank) continue;
      if (!matrix_beside(p)) continue;
      SeparateAdapter found{rank, {}};
      for (size_t at = products_[p]; at <= products_[p + 1]; ++at) found.gone.push_back(ops_[at]);
      add_passes_behind(products_[p + 1], found.gone);
      out.push_back(std::move(found));
    }
  }

 private:
  const Works& works() const { return context_.trace.works; }
  bool is_product(GpuOpId op) const {
    const WorkId of = context_.groups.work_of(op);
    return of != kNoRow && works().kind[of] == WorkKind::kGemm && works().batch[of] <= 1;
  }
  WorkId work(size_t product) const { return context_.groups.work_of(ops_[products_[product]]); }

  bool matrix_beside(size_t p) const {
    const int64_t m = works().m[work(p)], n = works().n[work(p + 1)], k = works().k[work(p)];
    const size_t from = p > kBeside ? p - kBeside : 0, until = std::min(products_.size(), p + 2 + kBeside);
    for (size_t other = from; other < until; ++other)
      if (works().m[work(other)] == m && works().n[work(other)] == n && works().k[work(other)] == k) return true;
    return false;
  }

  // What sums a split product up, what multiplies the result, and what adds it; the next addition is the residual's.
  void add_passes_behind(size_t at, std::vector<GpuOpId>& gone) const {
    const Trace& trace = context_.trace;
    for (++at; at < ops_.size(); ++at) {
      const std::string_view name = trace.text(trace.gpu_ops.name[ops_[at]]);
      const Category category = trace.gpu_links.category[ops_[at]];
      const bool part = category == Category::kGemm && !is_product(ops_[at]);
      if (!part && category != Category::kElementwise) return;
      const bool adds = has(name, "add") || has(name, "Add");
      if (!part && !adds && !has(name, "mul") && !has(name, "Mul")) return;
      gone.push_back(ops_[at]);
      if (adds) return;
    }
  }

  const Context& context_;
  const std::vector<GpuOpId>& ops_;
  std::vector<size_t> products_;
};

// By name.
std::vector<uint8_t> adapter_names(const Trace& trace) {
  std::vector<uint8_t> out(trace.strings.size(), 0);
  for (uint32_t id = 0; id < out.size(); ++id) {
    const std::string_view name = trace.text(static_cast<StringId>(id));
    out[id] = has(name, "lora_shrink") || has(name, "lora_expand") || has(name, "sgmv") || has(name, "bgmv") ? 1 : 0;
  }
  return out;
}

}  // namespace

std::vector<SeparateAdapter> separate_adapters(const Context& context) {
  const Trace& trace = context.trace;
  std::vector<SeparateAdapter> out;
  const std::vector<uint8_t> says_adapter = adapter_names(trace);
  const bool any_product = !trace.works.empty();
  std::map<std::pair<StreamId, StepId>, std::vector<GpuOpId>> streams;
  for (GpuOpId op = 0; op < trace.gpu_ops.size(); ++op) {
    const StepId step = trace.gpu_links.step[op];
    if (step == kNoRow || trace.gpu_ops.kind[op] != GpuOpKind::kKernel) continue;
    if (says_adapter[index(trace.gpu_ops.name[op])] != 0) {
      out.push_back({0, {op}});
    } else if (any_product) {
      streams[{trace.gpu_ops.stream[op], step}].push_back(op);
    }
  }
  for (const auto& [stream, ops] : streams) StreamProducts(context, ops).find(out);
  return out;
}

void find_separate_adapters(const FindingContext& finding) {
  constexpr double kShareMin = 0.05;
  struct Sums {
    double ns = 0, kernels = 0, adapters = 0;
    int64_t rank = 0;
  };
  std::map<uint32_t, Sums> stages;
  for (const SeparateAdapter& one : separate_adapters(finding.context)) {
    Sums& sums = stages[finding.stage_of(one.gone.front())];
    ++sums.adapters;
    sums.rank = std::max(sums.rank, one.rank);
    for (const GpuOpId op : one.gone)
      sums.ns += static_cast<double>(finding.trace().gpu_ops.dur_ns[op]), ++sums.kernels;
  }
  for (const StageView& stage : finding.stages) {
    const auto found = stages.find(stage.stage);
    if (found == stages.end()) continue;
    const Sums& sums = found->second;
    if (!finding.worth(stage, "merged-adapters", sums.ns >= kShareMin * stage.busy_ns())) continue;
    Finding& out = finding.add("separate-adapters", &stage,
                               fmt::format("{}adapters beside the matrices take {} of the GPU time", stage.label(),
                                           format_percent(sums.ns / stage.busy_ns())),
                               sums.ns);
    out.evidence = {counted("adapters per step", sums.adapters / stage.count(), Unit::kOne),
                    counted("kernels of theirs per step", sums.kernels / stage.count(), Unit::kOne),
                    measured("their GPU time per step", stage.per_step_ms(sums.ns), Unit::kMs)};
    if (sums.rank > 0)
      out.evidence.push_back(counted("their rank at most", static_cast<double>(sums.rank), Unit::kOne));
    out.advice = {
        "Merge the adapter into the weights when it is loaded (PEFT: merge_and_unload), where one serves all requests.",
        "Where requests have adapters of their own, use kernels that shrink, expand and add for all of them at once."};
    out.bound = stage.bound(sums.ns);
  }
}

}  // namespace llmprof
