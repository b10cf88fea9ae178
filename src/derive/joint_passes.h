// Passes of the model that one thread runs on several GPUs: layers that are divided among them (device_map of
// transformers, a pipeline or tensor parallelism within one process). Seen GPU by GPU such a pass has a beginning on
// one and an end on another; in the order in which the thread launched it has both.
#pragma once

#include <vector>

#include "derive/host_calls.h"
#include "derive/launch_order.h"
#include "derive/step_draft.h"

namespace llmprof {

// Replaces what was detected on GPUs that one thread drives by its passes over all of them, each a step on every GPU
// that it launches on (StepDraft::pass). Nothing changes where most passes stay on one GPU, or where there would be
// more of them than were detected on any one.
void detect_joint_passes(const Trace& trace, const std::vector<LaunchOrder>& orders, const HostCalls& calls,
                         const TokenEvents& events, std::vector<std::vector<StepDraft>>& detected);

// The steps of a pass are of one kind and have its tokens: those of the GPU that ends it.
void share_passes(std::vector<StepDraft>& steps);

// The steps of a pass have one window: from where the first of them begins to where the last ends.
void join_windows(std::vector<StepDraft>& steps);

}  // namespace llmprof
