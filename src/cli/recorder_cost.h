// What recording costs on this machine, measured: the same calls in processes with and without the recorder.
#pragma once

#include "base/result.h"
#include "results/call_costs.h"

namespace llmprof::cli {

// Runs `pairs` pairs of processes on the GPU with this CUDA number, 2 to 4 s each pair. The error says why there are no
// figures: no recorder beside the binary, CUPTI missing, this process is itself recorded.
Result<RecorderCosts> measure_recorder_costs(int ordinal, int pairs);

}  // namespace llmprof::cli
