#include "analyze/moved_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "analyze/converted_weights.h"
#include "analyze/finding.h"
#include "analyze/kernel_times.h"
#include "base/text_table.h"

namespace llmprof {
namespace {

constexpr int64_t kLongNs = 10'000;  // several times what a launch and a start take: the bytes are the reason

bool moves(const Trace& trace, GpuOpId op) {
  const GpuOps& ops = trace.gpu_ops;
  if (ops.dur_ns[op] < kLongNs || ops.kind[op] == GpuOpKind::kMemset) return false;
  if (ops.kind[op] == GpuOpKind::kMemcpy) return ops.path[op] == CopyPath::kOnDevice;
  const Category category = trace.gpu_links.category[op];
  return category == Category::kCopy || category == Category::kEmbedding || category == Category::kKvCache;
}

}  // namespace

std::vector<GpuOpId> moved_data(const Context& context) {
  const Trace& trace = context.trace;
  std::set<GpuOpId> known;
  for (const ConvertedWeights& one : converted_weights(context)) known.insert(one.passes.begin(), one.passes.end());
  std::vector<GpuOpId> out;
  for (GpuOpId op = 0; op < trace.gpu_ops.size(); ++op) {
    const StepId step = trace.gpu_links.step[op];
    if (step == kNoRow || !moves(trace, op) || known.count(op) > 0) continue;
    const bool appends =
        trace.steps.kind[step] == StageKind::kDecode && concatenates(trace.text(trace.gpu_ops.name[op]));
    if (!appends) out.push_back(op);
  }
  return out;
}

void find_data_movement(const FindingContext& finding) {
  constexpr double kShareMin = 0.1;
  struct Sums {
    double ns = 0, kernels = 0;
    std::map<StringId, double> names;
  };
  const Trace& trace = finding.trace();
  std::map<uint32_t, Sums> stages;
  for (const GpuOpId op : moved_data(finding.context)) {
    Sums& sums = stages[finding.stage_of(op)];
    const double ns = static_cast<double>(trace.gpu_ops.dur_ns[op]);
    sums.ns += ns;
    ++sums.kernels;
    sums.names[trace.gpu_ops.name[op]] += ns;
  }
  for (const StageView& stage : finding.stages) {
    const auto found = stages.find(stage.stage);
    if (found == stages.end() || found->second.ns < kShareMin * stage.busy_ns()) continue;
    const Sums& sums = found->second;
    if (!finding.worth(stage, "no-moves", true)) continue;
    Finding& out = finding.add("data-movement", &stage,
                               fmt::format("{}kernels that only move data take {} of the GPU time", stage.label(),
                                           format_percent(sums.ns / stage.busy_ns())),
                               sums.ns);
    out.evidence = {measured("such kernels of 10 us or more per step", sums.kernels / stage.count(), Unit::kOne),
                    measured("their GPU time per step", stage.per_step_ms(sums.ns), Unit::kMs)};
    const auto most = std::max_element(sums.names.begin(), sums.names.end(),
                                       [](const auto& a, const auto& b) { return a.second < b.second; });
    out.evidence.push_back(measured("of it the largest, " + std::string(trace.text(most->first).substr(0, 60)),
                                    stage.per_step_ms(most->second), Unit::kMs));
    out.advice = {
        "Move places instead of what is there: let attention and gathers read through a table (pages, beams, slots), "
        "and "
        "reorder only what differs.",
        "Give kernels the layout that they read, write in place, and convert or repeat once instead of in each step."};
    out.bound = stage.bound(sums.ns);
  }
}

}  // namespace llmprof
