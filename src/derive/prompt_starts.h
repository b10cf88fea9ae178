// Where a prompt begins that the program does not name. A detected step lasts from the end of the one before it, so
// that what a program does after its last token (checks of an answer, statistics) and its pause until the next request
// would be part of the next prompt's time.
#pragma once

#include <vector>

#include "derive/launch_order.h"
#include "derive/step_draft.h"

namespace llmprof {

// Lets detected prompts begin behind the last copy to the host that is launched before their first product: a pass of a
// model reads nothing back before it has computed anything. What was launched before belongs to no step.
// Call when kinds and windows are known, and when steps that touch unrecorded time are gone: a later beginning would
// hide that they do.
void begin_prompts_behind_results(Trace& trace, const std::vector<LaunchOrder>& orders, std::vector<StepDraft>& steps);

}  // namespace llmprof
