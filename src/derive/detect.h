// Steps found without annotations, from the order in which the host launched GPU work. In order of trust:
//   starts    embedding look-ups in the vocabulary table (operators), and CUDA graphs that hold a whole forward pass
//   ends      the choice of the next token (argmax, multinomial, ... over vocabulary-sized rows), behind an output
//   layer or
//             as it is made there; where no rule knows the products, behind the program's own kernels. Several passes
//             of two sizes between two waits of the host are one step
//   period    kernel names that recur once per step. The layers inside a step recur as well, so the names that recur
//             least often, at even distances and over the whole recording, are taken; where several of them lie between
//             two waits of the host, the waits are
// Between the end of one step and the start of the next the cut is at the host's blocking call, if it made one.
#pragma once

#include <vector>

#include "derive/host_calls.h"
#include "derive/step_draft.h"

namespace llmprof {

// Steps of one device, in launch order, disjoint, of all threads that launch on it: where two work at once, those of
// the one that launches more. Activities before, between and after may belong to none. Kinds are left to the shapes,
// except vision. Linear in the launches.
std::vector<StepDraft> detect_steps(const Trace& trace, const LaunchOrder& order, const HostCalls& calls,
                                    const TokenEvents& events);

}  // namespace llmprof
