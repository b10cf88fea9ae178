// What the shapes inside a step say about its tokens, and from that what kind of step it is.
#pragma once

#include <vector>

#include "derive/step_draft.h"

namespace llmprof {

// Fills the activity columns of the drafts (times, counts, hashes) from gpu_links.step, which must be set to the index
// into `steps`.
void measure_steps(const Trace& trace, const std::vector<LaunchOrder>& orders, std::vector<StepDraft>& steps);

// Fills token counts that are still unknown: embedding indices first, then attention shapes, then GEMM rows. `steps`
// are in host order.
void count_tokens(const Trace& trace, const std::vector<LaunchOrder>& orders, const TokenEvents& events,
                  std::vector<StepDraft>& steps);

// Gives a kind to the steps that have none. One query per sequence is decode, more is prefill; a batch that goes on
// with the sequences of the step before and adds a prompt is mixed. Without shapes: steps that repeat the same kernels
// are decode if they choose tokens or follow a longer step with other kernels, which is then the prefill; so are steps
// with kernels made for one query per sequence. Anything else stays other. `steps` are by device and host time.
void settle_kinds(std::vector<StepDraft>& steps);

}  // namespace llmprof
