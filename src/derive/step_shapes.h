// What the activities inside a step and their shapes say about it: its tokens, sequences and context.
#pragma once

#include <string_view>
#include <vector>

#include "derive/host_calls.h"
#include "derive/recorded_spans.h"
#include "derive/step_draft.h"

namespace llmprof {

// Fills the activity columns of the drafts (times, counts, hashes) from gpu_links.step, which must be set to the index
// into `steps`.
void measure_steps(const Trace& trace, const std::vector<LaunchOrder>& orders, std::vector<StepDraft>& steps);

// Fills token counts that are still unknown: embedding indices first, then attention shapes, then GEMM rows. `steps`
// are in host order.
void count_tokens(const Trace& trace, const std::vector<LaunchOrder>& orders, const TokenEvents& events,
                  std::vector<StepDraft>& steps);

// Sequences that a kernel of attention runs on, by its grid: FlashAttention-2 and memory-efficient attention; -1 where
// the grid does not tell.
int64_t sequences_of_grid(std::string_view kernel, const LaunchConfigs& configs, LaunchConfigId config);

}  // namespace llmprof
