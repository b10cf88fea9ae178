#include "analyze/uncached_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "analyze/finding.h"
#include "base/text_table.h"

namespace llmprof {

double needed_part(const Steps& steps, StepId step) {
  constexpr int64_t kRowsMin = 16;
  const int64_t sequences = steps.sequences[step], rows = steps.gemm_rows[step];
  if (steps.kind[step] != StageKind::kDecode || sequences < 1 || rows < kRowsMin * sequences) return 1;
  return steps.context[step] * sequences == rows ? static_cast<double>(sequences) / static_cast<double>(rows) : 1;
}

void find_no_kv_cache(const FindingContext& finding) {
  const Steps& steps = finding.trace().steps;
  for (const StageView& stage : finding.stages) {
    size_t uncached = 0;
    int64_t most = 0;
    for (const StepId step : stage.group->steps) {
      if (needed_part(steps, step) == 1) continue;
      ++uncached;
      most = std::max(most, steps.gemm_rows[step]);
    }
    if (uncached * 2 <= stage.group->steps.size() || !finding.worth(stage, "cached-keys", true)) continue;
    Finding& out = finding.add(
        "no-kv-cache", &stage,
        fmt::format(
            "{}each step runs the model on the whole text again, up to {} tokens, for one new one of each sequence",
            stage.label(), format_count(static_cast<double>(most))),
        stage.busy_ns());
    out.evidence = {counted("steps that read all of their text", static_cast<double>(uncached), Unit::kOne),
                    counted("tokens that the model runs on, at most", static_cast<double>(most), Unit::kOne),
                    measured("GPU time per step", stage.per_step_ms(stage.busy_ns()), Unit::kMs)};
    out.advice = {
        "Keep keys and values of earlier tokens (transformers: use_cache=True, and hand past_key_values on), and "
        "run the model on the newest token alone."};
    out.bound = stage.bound(stage.busy_ns());
  }
}

}  // namespace llmprof
