// Ranges whose words name a stage by chance: "turn 3: prefill my form" has what a user wrote in it.
#pragma once

#include <vector>

#include "derive/annotate.h"
#include "derive/launch_order.h"
#include "derive/step_draft.h"

namespace llmprof {

// Takes such ranges out of `stages`, as if their words named nothing. A name comes again; texts that come once each
// (numbers do not count), three or more of one kind on a thread, and that typically hold two runs of the model or more,
// are those of requests. A loop around tokens may be named so as well ("decode short", "decode long"): texts that name
// tokens go only where others of the thread do. `detected` are the steps found without ranges, for each order.
void drop_single_texts(const Trace& trace, const std::vector<LaunchOrder>& orders,
                       const std::vector<std::vector<StepDraft>>& detected, StageRanges& stages);

}  // namespace llmprof
