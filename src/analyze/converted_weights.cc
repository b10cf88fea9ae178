#include "analyze/converted_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string_view>

#include "analyze/elementwise_grid.h"
#include "analyze/finding.h"
#include "base/text_table.h"

namespace llmprof {
namespace {

class Passes {
 public:
  explicit Passes(const Context& context) : context_(context), trace_(context.trace) {}

  std::vector<ConvertedWeights> find() {
    struct Open {
      StepId step = kNoRow;
      std::vector<GpuOpId> passes;
    };
    std::map<StreamId, Open> streams;
    std::vector<ConvertedWeights> out;
    for (GpuOpId op = 0; op < trace_.gpu_ops.size(); ++op) {
      if (trace_.gpu_ops.kind[op] != GpuOpKind::kKernel) continue;
      Open& open = streams[trace_.gpu_ops.stream[op]];
      const StepId step = trace_.gpu_links.step[op];
      if (open.step != step) open = {step, {}};
      if (step == kNoRow) continue;
      const Category category = trace_.gpu_links.category[op];
      if (is_pass_over_memory(category) || category == Category::kOther) {
        open.passes.push_back(op);
      } else if (is_arithmetic(category)) {
        ConvertedWeights found{op, {}};
        for (const GpuOpId pass : open.passes)
          if (makes_weights(pass, op)) found.passes.push_back(pass);
        if (!found.passes.empty()) out.push_back(std::move(found));
        open.passes.clear();
      }
    }
    return out;
  }

 private:
  bool makes_weights(GpuOpId pass, GpuOpId product) const {
    const WorkId work = context_.groups.work_of(product);
    const std::string_view name = trace_.text(trace_.gpu_ops.name[pass]);
    if (name.find("equantize") != std::string_view::npos && name.find("KV") == std::string_view::npos) return true;
    // PyTorch's own kernel of weights that are kept as a direction and a length.
    if (name.find("weight_norm_fwd") != std::string_view::npos) return true;
    const Works& works = trace_.works;
    if (work == kNoRow || works.kind[work] != WorkKind::kGemm || works.batch[work] > 1) return false;
    const int64_t m = works.m[work], n = works.n[work], k = works.k[work];
    return covers(pass, n * k) && !covers(pass, m * k) && !covers(pass, m * n);
  }

  bool covers(GpuOpId pass, int64_t numbers) const { return passes_over(trace_, pass, numbers); }

  const Context& context_;
  const Trace& trace_;
};

}  // namespace

std::vector<ConvertedWeights> converted_weights(const Context& context) { return Passes(context).find(); }

void find_converted_weights(const FindingContext& finding) {
  constexpr double kShareMin = 0.05;
  struct Sums {
    double ns = 0, passes = 0, products = 0;
  };
  std::map<uint32_t, Sums> stages;
  for (const ConvertedWeights& one : converted_weights(finding.context)) {
    Sums& sums = stages[finding.stage_of(one.product)];
    ++sums.products;
    for (const GpuOpId pass : one.passes)
      sums.ns += static_cast<double>(finding.trace().gpu_ops.dur_ns[pass]), ++sums.passes;
  }
  for (const StageView& stage : finding.stages) {
    const auto found = stages.find(stage.stage);
    if (found == stages.end()) continue;
    const Sums& sums = found->second;
    if (!finding.worth(stage, "ready-weights", sums.ns >= kShareMin * stage.busy_ns())) continue;
    Finding& out = finding.add("converted-weights", &stage,
                               fmt::format("{}weights are converted before each product, {} of the GPU time",
                                           stage.label(), format_percent(sums.ns / stage.busy_ns())),
                               sums.ns);
    out.evidence = {measured("passes over weights per step", sums.passes / stage.count(), Unit::kOne),
                    measured("products behind them per step", sums.products / stage.count(), Unit::kOne),
                    measured("GPU time of these passes per step", stage.per_step_ms(sums.ns), Unit::kMs)};
    out.advice = {
        "Use products that read the stored type (Marlin or machete kernels for 4 and 8 bits, scaled FP8 GEMMs, "
        "torch.compile of weight-only quantisation), which read fewer bytes than 16-bit weights.",
        "Where memory allows, convert the weights once when they are loaded."};
    out.bound = stage.bound(sums.ns);
  }
}

}  // namespace llmprof
