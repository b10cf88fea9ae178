#include "analyze/rewritten_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "analyze/elementwise_grid.h"
#include "analyze/finding.h"
#include "base/text_table.h"

namespace llmprof {
namespace {

constexpr int64_t kMergedRankMost = 256, kThinness = 8;

class ThinProducts {
 public:
  ThinProducts(const Context& context, const std::vector<GpuOpId>& ops) : context_(context), ops_(ops) {
    for (const GpuOpId op : ops) {
      if (!is_plain_product(op) || is_thin(op)) continue;
      weights_.insert({works().n[work(op)], works().k[work(op)]});
      rows_.insert(works().m[work(op)]);
    }
  }

  void find(std::vector<RewrittenWeights>& out) const {
    for (size_t at = 0; at < ops_.size(); ++at) {
      const GpuOpId op = ops_[at];
      if (!is_plain_product(op) || !is_thin(op)) continue;
      const int64_t m = works().m[work(op)], n = works().n[work(op)];
      const bool as_weights = weights_.count({m, n}) > 0 && rows_.count(m) == 0;
      const bool transposed = weights_.count({n, m}) > 0 && rows_.count(n) == 0 && rows_.count(m) == 0;
      if (!as_weights && !transposed) continue;
      RewrittenWeights found{works().k[work(op)], {}};
      if (at > 0 && clears_counters(ops_[at - 1], op)) found.gone.push_back(ops_[at - 1]);
      found.gone.push_back(op);
      add_passes_behind(at, m * n, found.gone);
      out.push_back(std::move(found));
    }
  }

 private:
  // The library's own memset before a product whose blocks count each other.
  bool clears_counters(GpuOpId before, GpuOpId op) const {
    const GpuOps& all = context_.trace.gpu_ops;
    return all.kind[before] == GpuOpKind::kMemset && all.stream[before] == all.stream[op];
  }
  const Works& works() const { return context_.trace.works; }
  WorkId work(GpuOpId op) const { return context_.groups.work_of(op); }
  bool is_plain_product(GpuOpId op) const {
    return work(op) != kNoRow && works().kind[work(op)] == WorkKind::kGemm && works().batch[work(op)] <= 1;
  }
  bool is_thin(GpuOpId op) const {
    const int64_t k = works().k[work(op)];
    return k > 0 && k <= kMergedRankMost && works().m[work(op)] >= kThinness * k &&
           works().n[work(op)] >= kThinness * k;
  }
  // What scales the product and adds it to the weights it is made for.
  void add_passes_behind(size_t at, int64_t numbers, std::vector<GpuOpId>& gone) const {
    for (++at; at < ops_.size() && !is_arithmetic(context_.trace.gpu_links.category[ops_[at]]); ++at)
      if (passes_over(context_.trace, ops_[at], numbers)) gone.push_back(ops_[at]);
  }

  const Context& context_;
  const std::vector<GpuOpId>& ops_;
  std::set<std::pair<int64_t, int64_t>> weights_;  // n and k
  std::set<int64_t> rows_;
};

}  // namespace

std::vector<RewrittenWeights> rewritten_weights(const Context& context) {
  const Trace& trace = context.trace;
  if (trace.works.empty()) return {};
  std::map<StepId, std::vector<GpuOpId>> steps;
  for (GpuOpId op = 0; op < trace.gpu_ops.size(); ++op) {
    const StepId step = trace.gpu_links.step[op];
    if (step != kNoRow && trace.gpu_ops.kind[op] != GpuOpKind::kMemcpy) steps[step].push_back(op);
  }
  std::vector<RewrittenWeights> out;
  for (const auto& [step, ops] : steps) ThinProducts(context, ops).find(out);
  return out;
}

void find_rewritten_weights(const FindingContext& finding) {
  constexpr double kShareMin = 0.05;
  struct Sums {
    double ns = 0, products = 0;
    int64_t rank = 0;
  };
  std::map<uint32_t, Sums> stages;
  for (const RewrittenWeights& one : rewritten_weights(finding.context)) {
    Sums& sums = stages[finding.stage_of(one.gone.front())];
    ++sums.products;
    sums.rank = std::max(sums.rank, one.rank);
    for (const GpuOpId op : one.gone) sums.ns += static_cast<double>(finding.trace().gpu_ops.dur_ns[op]);
  }
  for (const StageView& stage : finding.stages) {
    const auto found = stages.find(stage.stage);
    if (found == stages.end()) continue;
    const Sums& sums = found->second;
    if (!finding.worth(stage, "weights-kept", sums.ns >= kShareMin * stage.busy_ns())) continue;
    Finding& out = finding.add("rewritten-weights", &stage,
                               fmt::format("{}weights are made anew from adapters in each step, {} of the GPU time",
                                           stage.label(), format_percent(sums.ns / stage.busy_ns())),
                               sums.ns);
    out.evidence = {counted("products that make weights per step", sums.products / stage.count(), Unit::kOne),
                    counted("their rank at most", static_cast<double>(sums.rank), Unit::kOne),
                    measured("GPU time of making weights per step", stage.per_step_ms(sums.ns), Unit::kMs)};
    out.advice = {
        "Keep a copy of the weights for each adapter where memory allows, or keep the adapter merged as long as it "
        "serves.",
        "With many adapters, compute them beside the matrix instead: two thin products on the few rows of a step read "
        "far less than rewriting the weights (SGMV or BGMV kernels, vLLM's and PEFT's unmerged LoRA)."};
    out.bound = stage.bound(sums.ns);
  }
}

}  // namespace llmprof
