// Findings about what decode steps compute and nobody needs.
#include <fmt/format.h>

#include <algorithm>

#include "analyze/finding.h"
#include "analyze/padding.h"
#include "base/text_table.h"

namespace llmprof {

void find_padded_batch(const FindingContext& finding) {
  constexpr double kShareMin = 0.05;  // of the stage's GPU time: less would not be noticed
  for (const StageView& stage : finding.stages) {
    const std::optional<PaddedBatch> batch = padded_batch(finding.context, stage.stage);
    if (!batch) continue;
    // By the program's own word already.
    if (std::any_of(finding.out->begin(), finding.out->end(),
                    [&](const Finding& one) { return one.id == "graph-padding" && one.stage == stage.timing->name; }))
      continue;
    std::vector<int64_t> times(finding.trace().gpu_ops.size(), replay::kStays);
    add_needed_rows(finding.context, times);
    double gain_ns = 0, attention_ns = 0;
    for (GpuOpId op = 0; op < times.size(); ++op) {
      const KernelKey& key = finding.key(finding.context.groups.kernel_of[op]);
      if (key.stage != stage.stage) continue;
      const double now_ns = static_cast<double>(finding.trace().gpu_ops.dur_ns[op]);
      if (key.category == Category::kAttention) attention_ns += now_ns;
      if (times[op] > 0) gain_ns += now_ns - static_cast<double>(times[op]);
    }
    if (!finding.worth(stage, "needed-rows", gain_ns >= kShareMin * stage.busy_ns())) continue;
    Finding& out = finding.add("padded-batch", &stage,
                               fmt::format("{}each step computes {} rows for {} {}", stage.label(), batch->rows,
                                           batch->sequences, batch->sequences == 1 ? "sequence" : "sequences"),
                               gain_ns);
    out.evidence = {
        counted("rows of its products and attention", static_cast<double>(batch->rows), Unit::kOne),
        counted("sequences of the prompts before it", static_cast<double>(batch->sequences), Unit::kOne),
        measured("most that a step reads back at once", static_cast<double>(batch->read_bytes), Unit::kBytes),
        measured("its attention per step", stage.per_step_ms(attention_ns), Unit::kMs),
        {"rows of the next power of two", static_cast<double>(batch->needed), Unit::kOne, Provenance::kFormula}};
    out.advice = {
        fmt::format("Run the step on no more rows than are in use, rounded up: capture CUDA graphs for several batch "
                    "sizes (1, 2, 4, 8, ...) and replay the smallest that holds the batch, here {}. Attention and "
                    "sampling do the work of every row, whether a sequence is in it or not.",
                    batch->needed)};
    finding.bound_work(stage, gain_ns, out);
  }
}

}  // namespace llmprof
