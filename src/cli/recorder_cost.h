// What recording costs on this machine, measured: the same calls with and without the recorder.
#pragma once

#include "base/result.h"
#include "results/call_costs.h"

namespace llmprof::cli {

// One process on the GPU with this CUDA number, in which the recorder comes and goes `pairs` times: 2 s and 1 s a pair.
// Before CUPTI 13.0, which CUDA graphs keep in their process, a second one without it for them: 2 s more. The error
// says why there are no figures: no recorder beside the binary, CUPTI missing, this process is itself recorded.
Result<RecorderCosts> measure_recorder_costs(int ordinal, int pairs);

}  // namespace llmprof::cli
