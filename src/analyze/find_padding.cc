// Findings about what decode steps compute and nobody needs.
#include <fmt/format.h>

#include <algorithm>

#include "analyze/finding.h"
#include "analyze/padding.h"
#include "base/text_table.h"

namespace llmprof {
namespace {

// Of the stage's GPU time: less would not be noticed.
constexpr double kPaddingShareMin = 0.05;

}  // namespace

void find_padded_batch(const FindingContext& finding) {
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
    if (!finding.worth(stage, "needed-rows", gain_ns >= kPaddingShareMin * stage.busy_ns())) continue;
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

void find_padded_attention(const FindingContext& finding) {
  for (const StageView& stage : finding.stages) {
    const std::optional<PaddedAttention> padded = padded_attention(finding.context, stage.stage);
    if (!padded) continue;
    std::vector<int64_t> times(finding.trace().gpu_ops.size(), replay::kStays);
    add_needed_keys(finding.context, times);
    double gain_ns = 0, attention_ns = 0;
    for (GpuOpId op = 0; op < times.size(); ++op) {
      if (times[op] <= 0 || finding.key(finding.context.groups.kernel_of[op]).stage != stage.stage) continue;
      const double now_ns = static_cast<double>(finding.trace().gpu_ops.dur_ns[op]);
      attention_ns += now_ns;
      gain_ns += now_ns - static_cast<double>(times[op]);
    }
    if (!finding.worth(stage, "needed-keys", gain_ns >= kPaddingShareMin * stage.busy_ns())) continue;
    Finding& out =
        finding.add("padded-attention", &stage,
                    fmt::format("{}attention reads at least {:.1f} times as many keys as the program can have made",
                                stage.label(), padded->read / padded->tokens),
                    gain_ns);
    const Provenance how = padded->by_counter ? Provenance::kMeasured : Provenance::kCounted;
    out.evidence = {
        {"keys that a layer reads per step and sequence, at least", padded->read / padded->sequences, Unit::kOne, how},
        counted("tokens that the model ran on until then, per sequence of a step", padded->tokens / padded->sequences,
                Unit::kOne),
        {"keys in use per sequence, by context, rounded up", padded->in_use / padded->sequences, Unit::kOne,
         Provenance::kFormula},
        measured("its attention per step", stage.per_step_ms(attention_ns), Unit::kMs)};
    if (padded->by_counter)
      out.evidence.push_back(
          measured("memory traffic per step, by hardware counter", padded->dram_bytes, Unit::kBytes));
    out.advice = {
        "Let attention see only the places in use: cut cache and mask to the longest text of the batch, rounded up "
        "(with CUDA graphs one for each of a few lengths), or use a kernel that takes the length of each text (paged "
        "or variable-length attention). Masked places are read and computed like any other."};
    finding.bound_work(stage, gain_ns, out);
  }
}

}  // namespace llmprof
