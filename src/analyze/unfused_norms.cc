#include "analyze/unfused_norms.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string_view>

#include "analyze/finding.h"
#include "base/text_table.h"

namespace llmprof {
namespace {

// What a kernel of PyTorch does, as far as a norm has it. x is squared by pow or by multiplying; the root is rsqrt, or
// sqrt and a division.
enum class NormPass : uint8_t { kUnseen, kOther, kCopy, kPower, kMean, kAdd, kAddScalar, kRoot, kMultiply };

NormPass pass_of(std::string_view name) {
  const auto has = [&](std::string_view word) { return name.find(word) != std::string_view::npos; };
  if (has("MeanOps")) return NormPass::kMean;
  if (has("sqrt_kernel")) return NormPass::kRoot;
  if (has("pow_tensor_scalar")) return NormPass::kPower;
  if (has("MulFunctor") || has("DivFunctor")) return NormPass::kMultiply;
  if (has("FunctorOnSelf_add")) return NormPass::kAddScalar;
  if (has("Functor_add")) return NormPass::kAdd;
  if (has("copy_kernel")) return NormPass::kCopy;
  return NormPass::kOther;
}

class Norms {
 public:
  explicit Norms(const Context& context) : trace_(context.trace), passes_(trace_.strings.size(), NormPass::kUnseen) {}

  std::vector<UnfusedNorm> find() {
    std::map<StreamId, std::vector<GpuOpId>> runs;
    for (GpuOpId op = 0; op < trace_.gpu_ops.size(); ++op) {
      std::vector<GpuOpId>& run = runs[trace_.gpu_ops.stream[op]];
      const StepId step = trace_.gpu_links.step[op];
      if (!run.empty() && trace_.gpu_links.step[run.front()] != step) judge(run);
      if (step == kNoRow || pass(op) == NormPass::kOther)
        judge(run);
      else
        run.push_back(op);
    }
    for (auto& [stream, run] : runs) judge(run);
    return std::move(found_);
  }

 private:
  NormPass pass(GpuOpId op) {
    if (trace_.gpu_ops.kind[op] != GpuOpKind::kKernel) return NormPass::kOther;
    NormPass& known = passes_[index(trace_.gpu_ops.name[op])];
    if (known == NormPass::kUnseen) known = pass_of(trace_.text(trace_.gpu_ops.name[op]));
    return known;
  }

  void judge(std::vector<GpuOpId>& run) {
    const auto is = [&](size_t i, NormPass what) { return i < run.size() && pass(run[i]) == what; };
    size_t from = 0;  // what no norm before has taken
    for (size_t mean = 1; mean < run.size(); ++mean) {
      if (!is(mean, NormPass::kMean) || mean == from) continue;
      const size_t square = mean - 1;
      if (!is(square, NormPass::kPower) && !is(square, NormPass::kMultiply)) continue;
      // x widened before.
      size_t begin = square;
      const bool widened = square > from && is(square - 1, NormPass::kCopy);
      if (widened) --begin;
      size_t root = mean + 1;
      if (is(root, NormPass::kAddScalar) || is(root, NormPass::kAdd)) ++root;  // eps
      if (!is(root, NormPass::kRoot) || !is(root + 1, NormPass::kMultiply)) continue;
      size_t end = root + 1;
      bool narrowed = false;
      // The weight, which may be widened or have one added to it; what is narrow again before or behind that.
      size_t weight = end + 1;
      if (is(weight, NormPass::kCopy)) ++weight;
      if (is(weight, NormPass::kAddScalar)) ++weight;
      if (is(weight, NormPass::kMultiply)) {
        narrowed = weight == end + 2 && is(end + 1, NormPass::kCopy);
        end = weight;
      }
      if (widened && !narrowed && is(end + 1, NormPass::kCopy)) ++end;
      UnfusedNorm& norm = found_.emplace_back();
      norm.passes.assign(run.begin() + static_cast<std::ptrdiff_t>(begin),
                         run.begin() + static_cast<std::ptrdiff_t>(end) + 1);
      const GpuOps& ops = trace_.gpu_ops;
      norm.stays = !widened && ops.dur_ns[run[square]] > ops.dur_ns[run[mean]] ? run[square] : run[mean];
      from = end + 1;
      mean = end;
    }
    run.clear();
  }

  const Trace& trace_;
  std::vector<NormPass> passes_;  // by name
  std::vector<UnfusedNorm> found_;
};

}  // namespace

std::vector<UnfusedNorm> unfused_norms(const Context& context) { return Norms(context).find(); }

// By simulation alone: sums of short kernels are small-kernels-unfused.
void find_norm_unfused(const FindingContext& finding) {
  std::vector<UnfusedNorm> all;
  if (finding.simulation != nullptr) all = unfused_norms(finding.context);
  if (all.empty()) return;
  const GpuOps& ops = finding.trace().gpu_ops;
  for (const StageView& stage : finding.stages) {
    double norms = 0, passes = 0, time_ns = 0, then_ns = 0;
    std::set<StepId> steps;
    for (const UnfusedNorm& norm : all) {
      const StepId step = finding.trace().gpu_links.step[norm.stays];
      if (finding.context.groups.stage_of_step[step] != stage.stage) continue;
      steps.insert(step);
      ++norms;
      passes += static_cast<double>(norm.passes.size());
      for (const GpuOpId op : norm.passes) time_ns += static_cast<double>(ops.dur_ns[op]);
      then_ns += static_cast<double>(ops.dur_ns[norm.stays]);
    }
    if (norms == 0 || !finding.worth(stage, "fused-norms", false)) continue;
    const double steps_seen = static_cast<double>(steps.size());
    time_ns *= stage.count() / steps_seen;
    then_ns *= stage.count() / steps_seen;
    Finding& out =
        finding.add("norm-unfused", &stage,
                    fmt::format("{}norms are chains of {} passes over memory, {} a step, and take {} of the GPU time",
                                stage.label(), format_count(passes / norms), format_count(norms / steps_seen),
                                format_percent(time_ns / stage.busy_ns())),
                    time_ns - then_ns);
    out.evidence = {counted("norms written out, per step", norms / steps_seen, Unit::kOne),
                    counted("kernels of each", passes / norms, Unit::kOne),
                    measured("their GPU time per step", stage.per_step_ms(time_ns), Unit::kMs),
                    {"of it as one pass each that reads and writes once", stage.per_step_ms(then_ns), Unit::kMs,
                     Provenance::kFormula}};
    out.advice = {
        "Make each norm one kernel: torch.nn.functional.rms_norm or layer_norm, torch.compile, or the fused RMSNorm "
        "(with the residual add) of inference servers. It widens numbers in registers, not in memory."};
    finding.bound_work(stage, time_ns - then_ns, out);
  }
}

}  // namespace llmprof
