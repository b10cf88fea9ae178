// Steps in time of which nothing was recorded, of programs that do not name them: by the host event that recurs once a
// step (the product of the output layer, the launch of the step's graph), which is recorded at every level.
#pragma once

#include <vector>

#include "derive/recorded_spans.h"
#include "derive/step_draft.h"

namespace llmprof {

// Adds a draft with its window for each. `steps` have their windows. Where in a step its event comes, and that the
// events keep the pace of the steps, is learned from the recorded ones of each stage, three at least; threads whose
// steps are named, stages that no event tells apart, steps that a pause or a prompt follows (their end is not known)
// and steps in which events came that no recorded one of their stage has are left out. A window is as long as the
// step was; where it begins may be off by what recording slows the host down before the event.
void add_recurring_steps(const Trace& trace, const RecordedSpans& recorded, std::vector<StepDraft>& steps);

}  // namespace llmprof
