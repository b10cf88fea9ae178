#include "analyze/layout_conversions.h"

#include <fmt/format.h>

#include <map>
#include <string_view>

#include "analyze/finding.h"
#include "base/text_table.h"

namespace llmprof {

std::vector<GpuOpId> layout_conversions(const Context& context) {
  const Trace& trace = context.trace;
  std::map<StringId, bool> names;
  std::vector<GpuOpId> out;
  for (GpuOpId op = 0; op < trace.gpu_ops.size(); ++op) {
    if (trace.gpu_ops.kind[op] != GpuOpKind::kKernel || trace.gpu_links.step[op] == kNoRow) continue;
    const auto [at, is_new] = names.try_emplace(trace.gpu_ops.name[op], false);
    if (is_new) {
      const std::string_view name = trace.text(trace.gpu_ops.name[op]);
      at->second =
          name.find("nchwToNhwc") != std::string_view::npos || name.find("nhwcToNchw") != std::string_view::npos;
    }
    if (at->second) out.push_back(op);
  }
  return out;
}

void find_layout_conversion(const FindingContext& finding) {
  constexpr double kConversionsShareMin = 0.05;
  struct Sums {
    double ns = 0, kernels = 0;
    StringId name = StringId::kEmpty;
  };
  const Trace& trace = finding.trace();
  std::map<uint32_t, Sums> stages;
  for (const GpuOpId op : layout_conversions(finding.context)) {
    Sums& sums = stages[finding.stage_of(op)];
    sums.ns += static_cast<double>(trace.gpu_ops.dur_ns[op]);
    ++sums.kernels;
    sums.name = trace.gpu_ops.name[op];
  }
  for (const StageView& stage : finding.stages) {
    const auto found = stages.find(stage.stage);
    if (found == stages.end()) continue;
    const Sums& sums = found->second;
    if (!finding.worth(stage, "channels-last", sums.ns >= kConversionsShareMin * stage.busy_ns())) continue;
    Finding& out =
        finding.add("layout-conversion", &stage,
                    fmt::format("{}tensors are converted between NCHW and NHWC around convolutions, {} of the "
                                "GPU time",
                                stage.label(), format_percent(sums.ns / stage.busy_ns())),
                    sums.ns);
    out.evidence = {measured("such conversions per step", sums.kernels / stage.count(), Unit::kOne),
                    measured("their GPU time per step", stage.per_step_ms(sums.ns), Unit::kMs)};
    out.where.push_back({"kernel", std::string(trace.text(sums.name)), {}});
    out.advice = {
        "Keep weights and activations in channels_last: model.to(memory_format=torch.channels_last), and the same for "
        "its input; operators between convolutions keep the layout."};
    finding.bound_work(stage, sums.ns, out);
  }
}

}  // namespace llmprof
