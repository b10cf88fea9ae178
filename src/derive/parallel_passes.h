// Passes of the model side by side: a batch that is decoded in parts, each on a stream of its own. The host starts all
// of them before it waits for one, and what it has then are the tokens of all: they are one step.
#pragma once

#include <vector>

#include "derive/host_calls.h"
#include "derive/launch_order.h"
#include "derive/step_draft.h"

namespace llmprof {

// Joins decode steps of one thread that ran at the same time on streams of their own, with no blocking call between
// them, into the first of each group: gpu_links.step follows, and the others have no launches any more. Tokens and
// sequences add up; their context is that of the longest. Nothing changes where less than half of the decode steps of a
// GPU are so, which is work that overlaps by chance. `steps` are by device and host time, and measured (measure_steps).
void join_parallel_passes(Trace& trace, const std::vector<LaunchOrder>& orders, const HostCalls& calls,
                          std::vector<StepDraft>& steps);

}  // namespace llmprof
