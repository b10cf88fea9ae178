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

// A pass of an encoder before the decoder's, of which nothing is read: no product behind it has its rows. A prompt
// before a step of other sequences ends with an output layer instead.
class IdleEncoder {
 public:
  static constexpr size_t kProductsMin = 8;

  IdleEncoder(const Context& context, StepId step, const std::vector<GpuOpId>& ops) : ops_(ops) {
    const Works& works = context.trace.works;
    const int64_t tokens = context.trace.steps.new_tokens[step];
    int64_t rows = 0, widest = 0, first_behind = 0;
    size_t leading = 0, behind = 0;
    for (size_t at = 0; at < ops.size(); ++at) {
      const WorkId work = context.groups.work_of(ops[at]);
      if (work == kNoRow || works.kind[work] != WorkKind::kGemm || works.batch[work] > 1) continue;
      if (leading == 0) rows = works.m[work];
      const bool of_encoder = works.m[work] == rows;
      if (!of_encoder && works.m[work] != tokens) return;
      if (of_encoder && behind > 0) return;
      if (of_encoder) {
        ++leading;
        last_ = at;
        continue;
      }
      if (++behind == 1) first_behind = works.n[work];
      widest = std::max(widest, works.n[work]);
    }
    found_ = leading >= kProductsMin && behind >= kProductsMin && first_behind < widest &&
             rows >= std::max(kRowsMin, kTimesAsManyMin * tokens);
  }
  // From the step's beginning to its last product.
  std::vector<GpuOpId> gone() const {
    return found_ ? std::vector<GpuOpId>(ops_.begin(), ops_.begin() + static_cast<ptrdiff_t>(last_) + 1)
                  : std::vector<GpuOpId>();
  }

 private:
  const std::vector<GpuOpId>& ops_;
  size_t last_ = 0;
  bool found_ = false;
};

void add_idle_encoders(const Context& context, std::vector<GpuOpId>& out) {
  const Trace& trace = context.trace;
  std::map<StepId, std::vector<GpuOpId>> steps;
  for (GpuOpId op = 0; op < trace.gpu_ops.size(); ++op) {
    const StepId step = trace.gpu_links.step[op];
    if (step == kNoRow || trace.steps.kind[step] != StageKind::kDecode || trace.steps.new_tokens[step] < 1) continue;
    if (trace.gpu_ops.kind[op] != GpuOpKind::kMemcpy) steps[step].push_back(op);
  }
  for (const auto& [step, ops] : steps) {
    const std::vector<GpuOpId> gone = IdleEncoder(context, step, ops).gone();
    out.insert(out.end(), gone.begin(), gone.end());
  }
}

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
  add_idle_encoders(context, out);
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
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
    const WorkId work = finding.context.groups.work_of(op);
    if (work == kNoRow || finding.trace().works.kind[work] != WorkKind::kGemm) continue;
    sums.rows = std::max(sums.rows, finding.trace().works.m[work]);
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
        "Compute once per request what does not depend on the new token, and keep it: what an encoder gives, keys and "
        "values of a cross attention, projected image or audio features."};
    out.bound = stage.bound(sums.ns);
  }
}

}  // namespace llmprof
