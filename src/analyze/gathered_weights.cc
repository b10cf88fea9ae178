#include "analyze/gathered_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "analyze/finding.h"
#include "analyze/kernel_times.h"
#include "base/text_table.h"

namespace llmprof {
namespace {

bool gathers(const Trace& trace, GpuOpId op) {
  if (trace.gpu_ops.kind[op] != GpuOpKind::kKernel) return false;
  if (trace.gpu_links.category[op] == Category::kEmbedding) return true;
  const std::string_view name = trace.text(trace.gpu_ops.name[op]);
  return name.find("gather") != std::string_view::npos || name.find("index_select") != std::string_view::npos;
}

// Bytes of the matrices of a batched product of few rows; 0 for others.
double matrices_bytes(const Context& context, GpuOpId op) {
  constexpr int64_t kBatchMin = 4, kRowsMost = 16;
  const Works& works = context.trace.works;
  const WorkId work = context.groups.work_of(op);
  if (work == kNoRow || works.kind[work] != WorkKind::kGemm) return 0;
  if (works.batch[work] < kBatchMin || works.m[work] > kRowsMost) return 0;
  return static_cast<double>(works.batch[work]) * static_cast<double>(works.k[work]) *
         static_cast<double>(works.n[work]) * std::max(1.0, dtype_bytes(works.dtype[work]));
}

}  // namespace

std::vector<GatheredWeights> gathered_weights(const Context& context) {
  std::vector<GatheredWeights> out;
  const double bytes_per_ns = context.device != nullptr ? reached_bytes_per_ns(*context.device).value_or(0) : 0.0;
  if (bytes_per_ns <= 0) return out;
  const Trace& trace = context.trace;
  std::map<StreamId, GpuOpId> before;  // the kernel before on each stream
  for (GpuOpId op = 0; op < trace.gpu_ops.size(); ++op) {
    if (trace.gpu_ops.kind[op] == GpuOpKind::kMemset) continue;  // of a product's counters
    const auto [last, is_first] = before.try_emplace(trace.gpu_ops.stream[op], op);
    const GpuOpId gather = std::exchange(last->second, op);
    const StepId step = trace.gpu_links.step[op];
    if (is_first || step == kNoRow || trace.gpu_links.step[gather] != step || !gathers(trace, gather)) continue;
    const double bytes = matrices_bytes(context, op);
    if (bytes > 0 && static_cast<double>(trace.gpu_ops.dur_ns[gather]) >= bytes / bytes_per_ns / 2)
      out.push_back({gather, op, bytes});
  }
  return out;
}

void find_gathered_weights(const FindingContext& finding) {
  struct Sums {
    double ns = 0, products_ns = 0, bytes = 0, gathers = 0;
    int64_t batch = 0;
  };
  const Trace& trace = finding.trace();
  std::map<uint32_t, Sums> stages;
  for (const GatheredWeights& one : gathered_weights(finding.context)) {
    Sums& sums = stages[finding.stage_of(one.gather)];
    sums.ns += static_cast<double>(trace.gpu_ops.dur_ns[one.gather]);
    sums.products_ns += static_cast<double>(trace.gpu_ops.dur_ns[one.product]);
    sums.bytes += one.bytes;
    sums.batch = std::max(sums.batch, trace.works.batch[finding.context.groups.work_of(one.product)]);
    ++sums.gathers;
  }
  for (const StageView& stage : finding.stages) {
    const auto found = stages.find(stage.stage);
    if (found == stages.end() || !finding.worth(stage, "weights-in-place", true)) continue;
    const Sums& sums = found->second;
    Finding& out = finding.add("gathered-weights", &stage,
                               fmt::format("{}weights are copied for each row before a product reads them, {} of the "
                                           "GPU time",
                                           stage.label(), format_percent(sums.ns / stage.busy_ns())),
                               sums.ns);
    out.evidence = {counted("such gathers per step", sums.gathers / stage.count(), Unit::kOne),
                    measured("their GPU time per step", stage.per_step_ms(sums.ns), Unit::kMs),
                    measured("of the products behind them", stage.per_step_ms(sums.products_ns), Unit::kMs),
                    counted("weights copied per step", sums.bytes / stage.count(), Unit::kBytes),
                    counted("matrices of a product at most", static_cast<double>(sums.batch), Unit::kOne)};
    out.advice = {
        "Let the product read the table: grouped products (sorted by adapter or expert), or kernels that take an index "
        "for each row (SGMV, fused MoE).",
        "Where there are few different ones, compute all of them side by side and keep what each row needs: the "
        "products then read each weight once, which is not in the figure."};
    out.bound = stage.bound(sums.ns);
  }
}

}  // namespace llmprof
