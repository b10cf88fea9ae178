// Steps that recording began in the middle of. CUPTI comes at the end of a wait, and a program that waits several
// times a step, and names none, is as well in the middle of one there.
#pragma once

#include <vector>

#include "derive/recorded_spans.h"
#include "derive/step_draft.h"

namespace llmprof {

// Takes the launches of such steps from them, so that they go. One is the first detected step behind time in which
// kernels were not recorded, where the host had called products or graphs since it last fetched the result of a step:
// both are seen at every recording level. Where it is not known which code fetches results, none is. Call when windows
// are known.
void drop_cut_beginnings(const Trace& trace, const RecordedSpans& recorded, std::vector<StepDraft>& steps);

}  // namespace llmprof
