// Warm-up: a line of its own per stage and cause.
#include "analyze/warm_up.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "analyze/analysis.h"
#include "derive/steps.h"

namespace llmprof {
namespace {

bool same_stage(const StageGroup& a, const StageGroup& b) {
  return !a.unattributed && !b.unattributed && a.device == b.device && a.name == b.name && a.kind == b.kind;
}

// Most time of `cold` goes to it.
WarmUpCause main_cause(const Steps& steps, const std::vector<Row>& cold) {
  std::array<int64_t, static_cast<size_t>(WarmUpCause::kCount)> ns{};
  for (const Row s : cold) ns[static_cast<size_t>(steps.warm_up_cause[s])] += 1 + steps.warm_up_ns[s];
  return static_cast<WarmUpCause>(std::max_element(ns.begin(), ns.end()) - ns.begin());
}

// Of a stage whose steady steps all ran while nothing was recorded, tables and findings cannot speak.
void ask_for_steady_steps(const Context& context, std::vector<CannotTell>& cannot_tell) {
  const std::vector<StageGroup>& groups = context.groups.stages;
  if (context.trace.gpu_ops.empty()) return;
  for (const StageGroup& group : groups) {
    if (group.unattributed || group.is_warm_up() || group.state != StepState::kNotRecorded) continue;
    size_t recorded = 0, cold = 0;
    for (const StageGroup& other : groups)
      if (same_stage(group, other) && other.state == StepState::kUsual)
        (other.is_warm_up() ? cold : recorded) += other.steps.size();
    if (recorded > 0) continue;
    const std::string_view stage = context.trace.text(group.name);
    cannot_tell.push_back({fmt::format("Where does the time of {} go once it is warm?", stage),
                           fmt::format("its {} steady steps ran while nothing was recorded{}", group.steps.size(),
                                       cold == 0 ? "" : fmt::format("; the {} that were recorded are warm-up", cold)),
                           "let it run longer, or record all of it: --unrecorded-windows off"});
  }
}

}  // namespace

std::string no_steady(const Steps& steps, const std::vector<Row>& cold, std::string_view one) {
  const std::string_view why = in_words(main_cause(steps, cold));
  return cold.size() == 1 ? fmt::format("the only {} is warm-up: {}", one, why)
                          : fmt::format("all {} {}s are warm-up, mostly because {}", cold.size(), one, why);
}

void analyze_warm_up(const Context& context, Report& report, std::vector<CannotTell>& cannot_tell) {
  const Steps& steps = context.trace.steps;
  const std::vector<StageGroup>& groups = context.groups.stages;
  ask_for_steady_steps(context, cannot_tell);
  for (const StageGroup& group : groups) {
    if (group.unattributed || !group.is_warm_up()) continue;
    int64_t steady = 0;
    for (const StageGroup& other : groups)
      if (same_stage(group, other) && !other.is_warm_up()) steady += static_cast<int64_t>(other.steps.size());
    std::array<WarmUpRecord, static_cast<size_t>(WarmUpCause::kCount)> rows;
    std::array<int64_t, static_cast<size_t>(WarmUpCause::kCount)> excess_ns{};
    for (const Row s : group.steps) {
      const auto cause = static_cast<size_t>(steps.warm_up_cause[s]);
      ++rows[cause].steps;
      rows[cause].wall_ms.ns += steps.end_ns[s] - steps.start_ns[s];
      excess_ns[cause] += std::max<int64_t>(0, steps.warm_up_ns[s]);
    }
    bool found = false;
    for (size_t cause = 0; cause < rows.size(); ++cause) {
      WarmUpRecord& row = rows[cause];
      if (row.steps == 0) continue;
      row.stage = step_label(context.trace.text(group.name), group.state, StepPhase::kServing);
      row.device = group.device;
      row.cause = static_cast<WarmUpCause>(cause);
      row.steady_steps = steady;
      if (row.cause != WarmUpCause::kNamed) row.excess_ms = static_cast<double>(excess_ns[cause]) / 1e6;
      found |= row.cause != WarmUpCause::kNamed;
      report.warm_up.push_back(row);
    }
    // Stages that make tokens are asked about with TTFT and TPOT.
    const bool tokens = group.kind == StageKind::kPrefill || group.kind == StageKind::kDecode;
    if (found && steady == 0 && !tokens)
      cannot_tell.push_back({fmt::format("What does {} take once it is warm?", context.trace.text(group.name)),
                             no_steady(steps, group.steps, "step"), "record more of its steps in the same run"});
  }
}

}  // namespace llmprof
