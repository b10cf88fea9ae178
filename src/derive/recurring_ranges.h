// Ranges that are the program's steps although their words name no stage: "embed 12 x 64", "verify", "step 17". They
// recur, and nearly all that the thread launches is launched in them.
#pragma once

#include <vector>

#include "derive/annotate.h"
#include "derive/host_calls.h"
#include "derive/launch_order.h"
#include "derive/step_draft.h"

namespace llmprof {

// Adds such ranges to `stages`, with StepName::recurs. `detected` are the steps found without ranges, for each order.
//
// Texts are compared without numbers. Of the ranges of the thread that launches most on a device, those count whose
// text is there at least three times (twice beside others of three), that are in no other such range, and that overlap
// no range whose words name a stage. Ranges of frameworks, libraries and operators are transparent.
//   - Where detection knows steps by what they hold (a look-up of embeddings, a graph, a choice of tokens), a text is a
//     step if its typical range holds such a step, and nearly all of those must lie in steps. So neither the parts of a
//     pass ("layer 3") are steps nor the sampling after it.
//     A text that holds none is a step of another model, which makes no tokens, if its typical range holds products
//     with weights but no output layer, the host waits for what it gives, and it comes in fewer than half of the steps:
//     what comes in each of them is a part of a step.
//   - Where it knows none, or only that kernel names recur, nothing else may name a stage, and a text is a step if the
//     host waits for the GPU in its typical range.
// If the typical range of a text holds several steps (a request), the recurring ranges inside take its place, if nearly
// all of its steps lie in them; else it is split as any range is.
void add_recurring_ranges(const Trace& trace, const std::vector<LaunchOrder>& orders,
                          const std::vector<std::vector<StepDraft>>& detected, const HostCalls& calls,
                          StageRanges& stages);

}  // namespace llmprof
