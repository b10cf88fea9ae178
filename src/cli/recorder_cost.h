// What recording costs on this machine, measured: the same calls with and without the recorder.
#pragma once

#include "base/result.h"
#include "results/call_costs.h"

namespace llmprof::cli {

// One process on the GPU with this CUDA number, in which the recorder comes and goes `pairs` times, and one without it
// for CUDA graphs, which keep it: 4 s and 0.8 s a pair. The error says why there are no figures: no recorder beside the
// binary, CUPTI missing, this process is itself recorded.
Result<RecorderCosts> measure_recorder_costs(int ordinal, int pairs);

}  // namespace llmprof::cli
