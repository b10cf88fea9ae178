#include "analyze/oversized_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "analyze/finding.h"
#include "analyze/kernel_times.h"
#include "base/text_table.h"

namespace llmprof {
namespace {

// Of the products of a step.
struct Matrices {
  double largest = 0, result = 0;  // bytes of any, and of a result
  double known_ns = 0, all_ns = 0;
};

std::vector<Matrices> matrices_by_step(const Context& context) {
  const Trace& trace = context.trace;
  const Works& works = trace.works;
  std::vector<Matrices> out(trace.steps.size());
  for (GpuOpId op = 0; op < trace.gpu_ops.size(); ++op) {
    const StepId step = trace.gpu_links.step[op];
    const Category category = trace.gpu_links.category[op];
    if (step == kNoRow || (category != Category::kGemm && category != Category::kConvolution)) continue;
    Matrices& of = out[step];
    const double ns = static_cast<double>(trace.gpu_ops.dur_ns[op]);
    of.all_ns += ns;
    const WorkId work = context.groups.work_of(op);
    if (work == kNoRow || works.kind[work] != WorkKind::kGemm) continue;
    of.known_ns += ns;
    const double width = std::max(dtype_bytes(works.dtype[work]), dtype_bytes(works.weight_dtype[work]));
    const auto bytes = [&](int64_t rows, int64_t columns) {
      return std::max(width, 2.0) * static_cast<double>(works.batch[work]) * static_cast<double>(rows) *
             static_cast<double>(columns);
    };
    const double result = bytes(works.m[work], works.n[work]);
    of.result = std::max(of.result, result);
    of.largest =
        std::max({of.largest, result, bytes(works.m[work], works.k[work]), bytes(works.k[work], works.n[work])});
  }
  return out;
}

bool fills_gpu(const Context& context, GpuOpId op) {
  const Trace& trace = context.trace;
  if (trace.gpu_ops.kind[op] == GpuOpKind::kMemset) return true;
  const LaunchConfigId config = trace.gpu_ops.config[op];
  if (trace.gpu_ops.kind[op] != GpuOpKind::kKernel || config == kNoRow) return false;
  constexpr int64_t kBlocksPerSm = 8;
  const LaunchConfigs& configs = trace.launch_configs;
  const int64_t blocks = int64_t{configs.grid_x[config]} * configs.grid_y[config] * configs.grid_z[config];
  return blocks >= kBlocksPerSm * context.device->sm_count.value_or(132);
}

}  // namespace

std::vector<OversizedPass> oversized_passes(const Context& context) {
  constexpr double kTimesLargest = 4, kKnownMin = 0.9;
  std::vector<OversizedPass> out;
  const double bytes_per_ns = context.device != nullptr ? reached_bytes_per_ns(*context.device).value_or(0) : 0.0;
  if (bytes_per_ns <= 0) return out;
  const Trace& trace = context.trace;
  const std::vector<Matrices> steps = matrices_by_step(context);
  for (GpuOpId op = 0; op < trace.gpu_ops.size(); ++op) {
    const StepId step = trace.gpu_links.step[op];
    if (step == kNoRow || trace.gpu_links.category[op] != Category::kElementwise || !fills_gpu(context, op)) continue;
    const Matrices& of = steps[step];
    const double bytes = static_cast<double>(trace.gpu_ops.dur_ns[op]) * bytes_per_ns;
    if (of.largest <= 0 || of.known_ns < kKnownMin * of.all_ns || bytes < kTimesLargest * of.largest) continue;
    out.push_back({op, bytes, std::max<int64_t>(kLeastKernelNs, std::llround(of.result / bytes_per_ns))});
  }
  return out;
}

void find_oversized_tensors(const FindingContext& finding) {
  struct Sums {
    double ns = 0, passes = 0, largest = 0;
    std::map<StringId, double> names;
  };
  const Trace& trace = finding.trace();
  std::map<uint32_t, Sums> stages;
  for (const OversizedPass& one : oversized_passes(finding.context)) {
    Sums& sums = stages[finding.stage_of(one.op)];
    const double ns = static_cast<double>(trace.gpu_ops.dur_ns[one.op]);
    sums.ns += ns;
    ++sums.passes;
    sums.largest = std::max(sums.largest, one.bytes);
    sums.names[trace.gpu_ops.name[one.op]] += ns;
  }
  for (const StageView& stage : finding.stages) {
    const auto found = stages.find(stage.stage);
    if (found == stages.end() || !finding.worth(stage, "small-tensors", true)) continue;
    const Sums& sums = found->second;
    Finding& out =
        finding.add("oversized-tensors", &stage,
                    fmt::format("{}passes over tensors larger than any of the model's take {} of the GPU time",
                                stage.label(), format_percent(sums.ns / stage.busy_ns())),
                    sums.ns);
    out.evidence = {measured("such passes per step", sums.passes / stage.count(), Unit::kOne),
                    measured("their GPU time per step", stage.per_step_ms(sums.ns), Unit::kMs),
                    {"bytes that the longest moves, by its time", sums.largest, Unit::kBytes, Provenance::kFormula}};
    for (const auto& [name, ns] : sums.names) {
      out.where.push_back({"kernel", std::string(trace.text(name)), {}});
      if (out.where.size() == 3) break;
    }
    out.advice = {
        "Compute on what is there instead of on all that could be: scatter or index_add instead of one-hot rows and a "
        "sum, a mask by comparison instead of a stored one, 32-bit counts instead of 64-bit ones.",
        "Keep such a tensor from step to step and change what is new in it."};
    out.bound = stage.bound(sums.ns);
  }
}

}  // namespace llmprof
