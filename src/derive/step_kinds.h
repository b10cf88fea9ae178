// From what the shapes inside a step say (step_shapes.h), and from its neighbours, what kind of step it is.
#pragma once

#include <vector>

#include "derive/host_calls.h"
#include "derive/recorded_spans.h"
#include "derive/step_draft.h"

namespace llmprof {

constexpr int64_t kDraftTokensMax = 16;  // verification of drafted tokens runs at most this many per sequence

// Gives a kind to the steps that have none. One query per sequence is decode, more is prefill (but a step whose
// products have no more rows than those of the steps that repeat, however long); a batch that goes on with the
// sequences of the step before and adds a prompt is mixed. Without shapes: steps that repeat the same kernels are
// decode if they choose tokens or follow a longer step with other kernels, which is then the prefill; so are steps with
// kernels made for one query per sequence. Drafts and their verification are speculative (speculation.h). Anything else
// stays other, but for ranges that always come before a prompt: those are of an encoder. `steps` are by device and host
// time.
void settle_kinds(const HostCalls& calls, std::vector<StepDraft>& steps);

// What all recorded ranges of one text are whose kind is known (recurring_ranges.h), the others are too: those that
// were not recorded, or in part, those of a first call with kernels of its own, and those that would be prompts of so
// few tokens that these may be drafts.
void settle_recurring(std::vector<StepDraft>& steps);

// For live recordings, whose shapes are those of library calls: sequences of steps that have none yet (a decode step
// runs on one token of each; a prompt has those of the decode steps after it), tokens produced where an output layer
// ran, and the context by counting: a prompt of S tokens per sequence is followed by S + 1, S + 2, ... That is given
// only where every step since the prompt is known. Call after settle_kinds.
void settle_sequences(const Trace& trace, const RecordedSpans& recorded, std::vector<StepDraft>& steps);

// Tokens of prompts whose annotation does not say whether they ended: if the decode step that follows on the device has
// as many sequences, each with one more token of context, they are the same ones, and each prompt gave its first token.
// Of prompts in one range between which the host does not wait it has no token before the last of them: two models that
// read the same prompt, for one.
void settle_prompts(const HostCalls& calls, std::vector<StepDraft>& steps);

}  // namespace llmprof
