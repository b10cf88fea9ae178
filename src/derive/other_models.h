// Passes of a second model that makes no tokens, where no range says so: a judge that reads the text after every few
// tokens, a filter before and after an answer.
#pragma once

#include <vector>

#include "derive/host_calls.h"
#include "derive/launch_order.h"
#include "derive/step_draft.h"
#include "trace/trace.h"

namespace llmprof {

// Takes them off the detected steps behind them, as steps of kind other. Detection ends a step with its logits, so a
// pass without any is the beginning of the next one. What runs of the model have in common are the sizes (features,
// reduction) of the weights that they multiply with, in order, which end with the output layer: a step that has more,
// all of other sizes, in front of these, and the host waiting for the GPU in between, holds such a pass. Where nine of
// ten of those with the same sizes stand before a prompt, on more rows than steps that make tokens have, they lead to
// it (an encoder), and stay; where they end is kept (Steps::other_model_ns), since a judge that reads each answer
// stands before the next prompt as well. Needs shapes of products.
void split_other_models(const Trace& trace, const std::vector<LaunchOrder>& orders, const HostCalls& calls,
                        std::vector<std::vector<StepDraft>>& detected);

}  // namespace llmprof
