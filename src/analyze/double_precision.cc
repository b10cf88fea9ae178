#include "analyze/double_precision.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "analyze/finding.h"
#include "analyze/kernel_times.h"
#include "base/text_table.h"

namespace llmprof {
namespace {

constexpr double kPartOfPass = 0.5;
// Bytes of an element that is converted between 8 and 2 or 4 bytes, then between 4 and 2 or 4: 10 to 6, or 12 to 8.
// On an H100 such copies took 0.56 to 0.66.
constexpr double kPartOfConversion = 0.63;

}  // namespace

bool computes_in_double(std::string_view name) {
  // Of random numbers the bounds are doubles, whatever is made of them.
  if (name.find("distribution_") != std::string_view::npos) return name.find("<double, ") != std::string_view::npos;
  for (const std::string_view part : {"<double", "lambda(double", "(double*", "(double const*", "dgemm", "d884gemm"})
    if (name.find(part) != std::string_view::npos) return true;
  return false;
}

std::vector<std::pair<GpuOpId, int64_t>> double_precision(const Context& context) {
  const Trace& trace = context.trace;
  std::map<StringId, double> parts;  // by name; 1: no double in it
  std::vector<std::pair<GpuOpId, int64_t>> out;
  for (GpuOpId op = 0; op < trace.gpu_ops.size(); ++op) {
    if (trace.gpu_ops.kind[op] != GpuOpKind::kKernel || trace.gpu_links.step[op] == kNoRow) continue;
    const auto [at, is_new] = parts.try_emplace(trace.gpu_ops.name[op], 1.0);
    if (is_new) {
      const std::string_view name = trace.text(trace.gpu_ops.name[op]);
      if (computes_in_double(name))
        at->second = name.find("copy_kernel") != std::string_view::npos ? kPartOfConversion : kPartOfPass;
    }
    const int64_t ns = trace.gpu_ops.dur_ns[op];
    if (at->second < 1 && ns > kLeastKernelNs)
      out.emplace_back(op, std::max<int64_t>(kLeastKernelNs, std::llround(static_cast<double>(ns) * at->second)));
  }
  return out;
}

void find_double_precision(const FindingContext& finding) {
  constexpr double kDoublesShareMin = 0.1;
  struct Sums {
    double ns = 0, then_ns = 0, kernels = 0;
    std::map<StringId, double> names;
  };
  const Trace& trace = finding.trace();
  std::map<uint32_t, Sums> stages;
  for (const auto& [op, then_ns] : double_precision(finding.context)) {
    Sums& sums = stages[finding.stage_of(op)];
    const double ns = static_cast<double>(trace.gpu_ops.dur_ns[op]);
    sums.ns += ns;
    sums.then_ns += static_cast<double>(then_ns);
    ++sums.kernels;
    sums.names[trace.gpu_ops.name[op]] += ns;
  }
  for (const StageView& stage : finding.stages) {
    const auto found = stages.find(stage.stage);
    if (found == stages.end()) continue;
    const Sums& sums = found->second;
    if (!finding.worth(stage, "single-precision", sums.ns >= kDoublesShareMin * stage.busy_ns())) continue;
    Finding& out = finding.add("double-precision", &stage,
                               fmt::format("{}kernels that compute in double precision take {} of the GPU time",
                                           stage.label(), format_percent(sums.ns / stage.busy_ns())),
                               sums.ns - sums.then_ns);
    out.evidence = {
        measured("such kernels per step", sums.kernels / stage.count(), Unit::kOne),
        measured("their GPU time per step", stage.per_step_ms(sums.ns), Unit::kMs),
        {"their time per step in single precision", stage.per_step_ms(sums.then_ns), Unit::kMs, Provenance::kFormula}};
    const auto most = std::max_element(sums.names.begin(), sums.names.end(),
                                       [](const auto& a, const auto& b) { return a.second < b.second; });
    out.where.push_back({"kernel", std::string(trace.text(most->first)), {}});
    out.advice = {
        "Compute in float32, or in the model's type: look for .double(), torch.float64, and NumPy arrays or Python "
        "numbers that became tensors without a dtype."};
    finding.bound_work(stage, sums.ns - sums.then_ns, out);
  }
}

}  // namespace llmprof
