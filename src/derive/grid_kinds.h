// Prompts and tokens recognised by the grids of kernels, where no product's shape is known and no rule knows the choice
// of a token: programs whose kernels are all their own.
#pragma once

#include <vector>

#include "derive/host_calls.h"
#include "derive/launch_order.h"
#include "derive/step_draft.h"

namespace llmprof {

// Makes decode steps and prompts of detected steps and ranges that are of no kind so far, where
//   - passes of two sizes run the same kernels in the same order, and the smaller one most often;
//   - the larger one runs every product and attention on more blocks, but for the end: the last product alone, and what
//     follows it, are of one size. So does a model that wants the logits of a prompt's last token only. A classifier's
//     last product is of its whole batch, and what training ends with holds no product or several;
//   - a larger pass is followed by two smaller ones;
//   - the host waits for a few bytes at the end of most smaller ones, and gives none of them more than that back: what
//     they run on, the pass before made. A pass over a new batch needs its input.
// Passes that go on like that behind a prompt that is known by a library's kernels make tokens too.
// A prompt may be read token by token instead: the larger one is then the smaller one's kernels at least twice over, of
// any category, but for the end. Call when other kinds are settled. `steps` are by device and host time.
void settle_by_grids(const Trace& trace, const std::vector<LaunchOrder>& orders, const HostCalls& calls,
                     std::vector<StepDraft>& steps);

}  // namespace llmprof
