// Detected steps whose composition the recording does not tell: of servers that put the tokens of several requests into
// one run of the model, and of programs that are no language model at all. Neither is prefill or decode of a request,
// so nothing may be made of them that has the name of TTFT, TPOT or tokens per second.
#pragma once

#include <string_view>
#include <vector>

#include "derive/step_draft.h"

namespace llmprof {

// How the stage of the former is called.
inline constexpr std::string_view kSeveralRequests = "steps of several requests";

// Call when kinds and counts are settled. Steps whose kind the program named stay as they are.
//
// Several requests, per device: some step gives logits for more rows than sequences of equal length have. One prompt
// gives them for its last token or for all of them; a padded batch for as many tokens as it has sequences, in equal
// parts. Or three steps in a row each go on where the one before ended and choose tokens for all of their rows, which a
// prompt does only at its end.
// No language model: steps that are known only because kernel names recur, in a recording without attention, choice of
// tokens, look-up of a vocabulary, rotary embedding, cache or output layer.
void forget_unknown_compositions(const Trace& trace, std::vector<StepDraft>& steps);

}  // namespace llmprof
