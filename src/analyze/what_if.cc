// Counterfactuals that the user asks for: what a step of each stage would take, by replay.
#include "analyze/analysis.h"
#include "analyze/processor.h"
#include "analyze/simulation.h"

namespace llmprof {

void analyze_what_ifs(const Context& context, Report& report, std::vector<CannotTell>& cannot_tell) {
  if (context.options.what_ifs.empty()) return;
  const Groups& groups = context.groups;
  if (context.replayed.steps.empty() || on_cpu(context)) {
    cannot_tell.push_back(
        {"What would the changes of --what-if bring?",
         "no step was recorded whole with the calls that launched its kernels, so none can be replayed",
         "record with llmprof run, or with torch.profiler on CPU and CUDA"});
    return;
  }
  Simulation simulation(context);
  for (const Combination& combination : context.options.what_ifs) {
    for (uint32_t s = 0; s < groups.stages.size(); ++s) {
      const std::optional<StageGain> gain = simulation.gain(s, combination);
      if (!gain) continue;
      WhatIfRecord& row = report.what_ifs.emplace_back();
      row.what_if = joined_ids(combination);
      row.stage = stage_name(context.trace, groups, s);
      row.device = groups.stages[s].device;
      row.steps = static_cast<int64_t>(gain->steps);
      row.step_ms = gain->step_ms;
      row.then_ms = gain->then_ms;
      row.gain_ms = gain->gain_ms;
      if (gain->ci95_ms) row.ci95_low_ms = (*gain->ci95_ms)[0], row.ci95_high_ms = (*gain->ci95_ms)[1];
      if (gain->step_ms > 0) row.gain_frac = gain->frac();
      if (gain->tokens != 1 && gain->then_ms > 0) row.tokens_factor = gain->tokens * gain->step_ms / gain->then_ms;
      row.forbidden = gain->forbidden;
    }
  }
  for (uint32_t s = 0; s < groups.stages.size(); ++s)
    if (simulation.fails(s))
      cannot_tell.push_back(
          {"What would the changes of --what-if bring to " + stage_name(context.trace, groups, s) + "?",
           "replay does not give its steps back as they were recorded",
           "see the critical path's error and what was not recorded"});
}

}  // namespace llmprof
