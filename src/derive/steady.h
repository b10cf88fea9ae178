// Which steps are warm-up, why, and what that cost: Steps::phase, warm_up_ns and warm_up_cause, beside what find_steps
// knows by names. Steps are compared with others of their device, stage and shape (sequences and new tokens, or GEMM
// rows; shapes that fewer than three steps have within a factor of 2; prompts of unknown length by what they take
// beyond their kernels' time), and of which the same kernels are recorded, for recording costs time. What makes a step
// cold is looked for in the recording:
//
//   named            it lies before the first step that the program names (derive/steps.h); warm_up_ns is 0
//   module-loading   modules or functions were loaded: overhead records, calls that load modules
//   compilation      overhead of the driver's compiler, Python functions of torch.compile and Triton
//   graph-capture    between StreamBeginCapture and EndCapture, in GraphInstantiate
//   allocation       calls that allocate memory
//   first-calls      kernels of the step had not run in the process before (told where all before it is recorded)
//   unknown          its time alone says so
//
// The first four have a length, and of those that come once a step alone can tell. None makes a warm-up of a step that
// takes no longer than others (base/steady_series.h says when one does). Steps at window edges are left alone. A stage
// whose steps fall to their end is warm-up throughout; one whose only step shows no cause is not called so.
#pragma once

#include <string_view>

#include "trace/trace.h"

namespace llmprof {

// Writes the three columns; what find_steps named stays. Needs steps and gpu_links.
void find_steady(Trace& trace);

}  // namespace llmprof
