// Steps in time of which nothing was recorded, of programs that do not name them: by the host event that recurs once a
// step (the product of the output layer, the launch of the step's graph) and by the rows of products, which are
// recorded at every level.
#pragma once

#include <vector>

#include "derive/recorded_spans.h"
#include "derive/step_draft.h"

namespace llmprof {

struct StageRanges;

// Adds a draft with its window for each step that makes tokens, and for each prompt where rows of products
// (product_rows.h) or the code that fetches results (host_waits.h) tell. `steps` have their windows. A step ends with
// the wait of the code that ends recorded ones; where that is not known, as long behind its event as they do, three at
// least; the step before it ended likewise. A prompt begins by its first product, as long before it as recorded ones
// (two at least) do. Where nothing tells them, as prompts without a library's products, no prompt is added, and no step
// that is longer than halfway from the steps to the shortest recorded prompt. A step without products and graphs has
// that wait as its event.
// Threads that begin when others have ended count as one (a thread for each request). Where ranges hold several steps
// each, the steps of a range are those that end in one; where they hold prompts too, the first token of each is left
// out, since nothing says when the prompt before it ended. Left out are threads whose steps are named, hosts that run
// ahead of the GPU, stages that no event tells apart, steps behind a pause, and those in which products or graphs came
// that no recorded one of their stage has.
void add_recurring_steps(const Trace& trace, const StageRanges& ranges, const RecordedSpans& recorded,
                         std::vector<StepDraft>& steps);

}  // namespace llmprof
