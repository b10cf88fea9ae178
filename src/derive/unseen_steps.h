// Steps in time that was recorded without kernels: ranges that the program named, with their host times only.
#pragma once

#include <vector>

#include "derive/annotate.h"
#include "derive/host_calls.h"
#include "derive/launch_order.h"
#include "derive/recorded_spans.h"
#include "derive/step_draft.h"

namespace llmprof {

// Appends a draft for every stage range that touches unrecorded time of its process and launched nothing that was
// recorded. Its times are those of the host, which are the step's only if the host waits for the GPU every step:
//   - if most recorded steps of the stage do not wait, the ranges say nothing about the GPU and are left out, unless
//   - the ranges lie in an outer range that lasts at least a step longer than the last of them (a loop that waits at
//     its end), with no stage range behind them in it, and that is not recorded at all: its time is then divided evenly
//     over its steps, true for their mean.
// Of a thread that launches nothing, ranges of what comes before a prompt are of requests that wait in a queue, not of
// the next step; nor are those whose text, but for its numbers, is of ranges that launch nothing where they are
// recorded; nor any others, where it is known which threads call what each run of a model calls. `steps` are the drafts
// with recorded launches.
void add_unseen_steps(const Trace& trace, const StageRanges& stages, const std::vector<LaunchOrder>& orders,
                      const RecordedSpans& recorded, const HostCalls& calls, std::vector<StepDraft>& steps);

// Ranges of which recorded ones hold several steps (several replays of a graph for one fetch). Where all of these make
// tokens, an unseen one is divided evenly into as many as the calls in it say that came once a step in all recorded
// ones, or as all recorded ones hold; the new drafts are at the end. Where some do, or nothing says how many there are,
// unseen ones go: how long a step takes in them nobody can say. Call when recorded steps have their kinds.
void divide_unseen_steps(const Trace& trace, const RecordedSpans& recorded, std::vector<StepDraft>& steps);

}  // namespace llmprof
