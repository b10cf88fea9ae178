// Two or more sides, each a run or repeats of it: what differs, whether that is more than runs differ by anyway, and
// where it comes from. The decision is in verdict.h, what belongs to what in match.h, the attribution in attribute.h.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "diff/run.h"

namespace llmprof::diff {

// What --fail-on asks for: a metric that is worse than that of the first side by more than `limit_frac`.
struct Gate {
  enum class What : uint8_t { kTtft, kTpot, kRate, kAnyStage };
  What what = What::kTpot;
  double limit_frac = 0;
  std::string expression;  // as it was given
};
// "ttft>3%", "tpot>3%", "rate>3%", "slower:5%", several with commas. The error shows the grammar.
Result<std::vector<Gate>> parse_gates(const std::vector<std::string>& words);
// For each gate and side but the first. Worse by more than the limit over the whole 95 % interval: broken; by no more
// over the whole of it: holds; else, and where the machines are not comparable: ambiguous.
std::vector<DiffGate> judge(const std::vector<Gate>& gates, const DiffResult& result);

// At least two sides, each with at least one run. Every other side is compared with the first.
DiffResult diff(const std::vector<Side>& sides, const std::vector<Gate>& gates = {});

// Whether the machines were the same, as far as the recordings say.
DiffComparable compare_machines(const std::vector<DiffSide>& sides, const std::vector<Side>& runs);
DiffSide describe_side(const Side& side);
// By how much of a time another SM clock can have changed it at most, as a share: work may follow the clock or not. 0
// where the machines do not differ; nothing where something else does, or a clock is not known.
std::optional<double> clock_difference(const DiffResult& result, size_t side);

}  // namespace llmprof::diff
