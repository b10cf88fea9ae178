// What runs of one unchanged program differ by: the standard deviation of the logarithm of a step's time from process
// to process. By what the step waits for, the host or the GPU: host code takes another time in each process, what a GPU
// computes hardly does.
//
// Fitted on equal processes that ran alone, without llmprof (docs/results, benchmarks/diff_noise.py): medians over
// programs. Those are H100s and H200s of virtual machines that share their cores; pairs of recordings on GPUs are still
// to be fitted. Runs that are repeated say by themselves what they differ by, and then nothing of this is used
// (verdict.h).
#pragma once

#include <optional>

namespace llmprof::diff {

constexpr double kHostDeviation = 0.147;  // eager programs as they ran: 105 sets of processes, 2.8 to 20.8 %
constexpr double kHostFullPaceDeviation =
    0.030;                               // the same of steps at the full pace of the CPU: 24 sets, 1.1 to 6.1 %
constexpr double kGpuDeviation = 0.011;  // programs of CUDA graphs: 13 sets, 0.5 to 1.8 %

// `host_frac`: part of the step that waits for the host. `full_pace`: the figures are of steps at full pace, or the CPU
// was never slow.
double deviation_of(double host_frac, bool full_pace);

// A CPU that was slow in fewer probes than that was at full pace.
constexpr double kSeldomSlow = 0.05;
bool at_full_pace(const std::optional<double>& cpu_slow_frac);

}  // namespace llmprof::diff
