// Steps in time of which nothing was recorded, of programs that do not name them: by the host event that recurs once a
// step (the product of the output layer, the launch of the step's graph), which is recorded at every level.
#pragma once

#include <vector>

#include "derive/recorded_spans.h"
#include "derive/step_draft.h"

namespace llmprof {

// Adds a draft with its window for each step that makes tokens. `steps` have their windows. How long a step goes on
// behind its event is learned from the recorded ones of each stage, three at least; the step before it ended likewise.
// Left out are threads whose steps are named, hosts that run ahead of the GPU, stages that no event tells apart, steps
// behind a pause, and those that may be a prompt: events came that no recorded one of their stage has, or they are
// longer than halfway from the steps to the shortest recorded prompt.
void add_recurring_steps(const Trace& trace, const RecordedSpans& recorded, std::vector<StepDraft>& steps);

}  // namespace llmprof
