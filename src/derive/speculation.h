// Speculative decoding: a small model drafts tokens, the whole model checks them in one pass, and how many it accepted
// is known to the program alone.
#pragma once

#include <vector>

#include "derive/step_draft.h"

namespace llmprof {

// Makes StageKind::kSpeculative of the passes that draft tokens and of those that verify them, on devices where drafts
// are verified three times or more. A verification is a pass
//   - over few tokens of each sequence, more than one,
//   - that attends to more keys than it has queries, and gives logits for all of its tokens, as far as either is known,
//   - directly after passes over a token or few each, as many as it has tokens or one less: the drafts of these tokens,
//   - with more weights than those passes have. A piece of a prompt that goes on after decode steps runs on the same
//     model as they do, and so does the short prompt of a chat.
// A model may guess by itself, by further heads or from its text so far. Passes over two to 16 tokens of a sequence
// verify such guesses where they recur behind one another and behind a longer prompt, by the same kernels, four times
// or more, and the device has no pass over one token of a sequence with half of the weights or more.
//
// Drafts make 0 output tokens; what a verification makes is unknown. Steps whose kind the program named stay as they
// are. Call when kinds are known by shapes. `steps` are by device and host time.
void settle_speculation(std::vector<StepDraft>& steps);

}  // namespace llmprof
