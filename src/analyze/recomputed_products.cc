#include "analyze/recomputed_products.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "analyze/finding.h"
#include "base/text_table.h"

namespace llmprof {
namespace {

constexpr int64_t kTimesAsManyMin = 16, kRowsMin = 128;

struct StepProducts {
  std::vector<GpuOpId> wide;  // on many more rows
  std::set<int64_t> inner, outer;
  size_t usual = 0;  // on the new tokens
  bool recompute() const { return wide.size() >= 2 && inner.size() == 1 && outer.size() <= 2 && usual >= wide.size(); }
};

}  // namespace

std::vector<GpuOpId> recomputed_products(const Context& context) {
  const Trace& trace = context.trace;
  const Works& works = trace.works;
  std::map<StepId, StepProducts> steps;
  for (GpuOpId op = 0; op < trace.gpu_ops.size(); ++op) {
    const StepId step = trace.gpu_links.step[op];
    if (step == kNoRow || trace.steps.kind[step] != StageKind::kDecode || trace.steps.new_tokens[step] < 1) continue;
    const WorkId work = context.groups.work_of(op);
    if (work == kNoRow || works.kind[work] != WorkKind::kGemm || works.batch[work] > 1) continue;
    StepProducts& products = steps[step];
    if (works.m[work] <= 2 * trace.steps.new_tokens[step]) ++products.usual;
    if (works.m[work] < std::max(kRowsMin, kTimesAsManyMin * trace.steps.new_tokens[step])) continue;
    products.wide.push_back(op);
    products.inner.insert(works.k[work]);
    products.outer.insert(works.n[work]);
  }
  std::vector<GpuOpId> out;
  for (const auto& [step, products] : steps)
    if (products.recompute()) out.insert(out.end(), products.wide.begin(), products.wide.end());
  std::sort(out.begin(), out.end());
  return out;
}

void find_recomputation(const FindingContext& finding) {
  constexpr double kShareMin = 0.05;
  struct Sums {
    double ns = 0, products = 0;
    int64_t rows = 0;
  };
  std::map<uint32_t, Sums> stages;
  for (const GpuOpId op : recomputed_products(finding.context)) {
    Sums& sums = stages[finding.context.groups.stage_of_step[finding.trace().gpu_links.step[op]]];
    sums.ns += static_cast<double>(finding.trace().gpu_ops.dur_ns[op]);
    sums.rows = std::max(sums.rows, finding.trace().works.m[finding.context.groups.work_of(op)]);
    ++sums.products;
  }
  for (const StageView& stage : finding.stages) {
    const auto found = stages.find(stage.stage);
    if (found == stages.end()) continue;
    const Sums& sums = found->second;
    if (!finding.worth(stage, "products-kept", sums.ns >= kShareMin * stage.busy_ns())) continue;
    const std::string rows = format_count(static_cast<double>(sums.rows));
    Finding& out = finding.add("recomputation", &stage,
                               fmt::format("{}{:.3g} products a step run on up to {} rows, of which few are new tokens",
                                           stage.label(), sums.products / stage.count(), rows),
                               sums.ns);
    out.evidence = {counted("such products per step", sums.products / stage.count(), Unit::kOne),
                    counted("their rows at most", static_cast<double>(sums.rows), Unit::kOne),
                    measured("their GPU time per step", stage.per_step_ms(sums.ns), Unit::kMs)};
    out.advice = {
        "Compute once per request what does not depend on the new token, and keep it: keys and values of a cross "
        "attention, projected image or audio features."};
    out.bound = stage.bound(sums.ns);
  }
}

}  // namespace llmprof
