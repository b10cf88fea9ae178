// By how much two runs of one unchanged program differ: quantiles of the absolute difference of the logarithms of their
// figures, over pairs of runs of many programs, each program with the same weight. By what a step waits for: host code
// takes another time in each process, what a GPU computes hardly does.
//
// Quantiles and no deviation, for runs are not normally distributed: most are close together, and now and then one
// takes half as long again for no reason that shows. Of the same programs' pairs an interval by their median deviation
// (3 % at full pace) called 1 in 8 different, where it was to be 1 in 20.
//
// Fitted on equal processes on H100s and H200s that ran alone, without llmprof, and what is unsure on runs of the
// reference workload on a CPU with busy neighbours (docs/results, `benchmarks/diff_noise.py`). The GPUs' machines are
// virtual and share their cores. Pairs of recordings on GPUs: steps with the host at one pace alone. Runs that are
// repeated often enough say by themselves what they differ by, and then nothing of this is used (verdict.h).
#pragma once

#include <optional>

namespace llmprof::diff {

struct Noise {
  double p90 = 0, p95 = 0, p98 = 0;  // so many of 100 pairs are closer than that
};

constexpr Noise kHostNoise = {0.44, 0.51, 0.59};           // as they ran: 85 sets of processes of eager programs
constexpr Noise kHostFullPaceNoise = {0.093, 0.13, 0.30};  // steps at the full pace of the CPU: 23 sets
constexpr Noise kGpuNoise = {0.035, 0.037, 0.044};         // steps of one CUDA graph: 8 sets
// Recorded steps with the host at one pace (pace.h): of equal runs of an eager decoder on seven H200s on five
// occasions the noisiest had 0.036, 0.039 and 0.043, all taken to the pace of one run; rounded up, for hosts that were
// not seen.
constexpr Noise kAtPaceNoise = {0.04, 0.05, 0.06};
// Of one or two steps, or where the program's threads waited for a CPU that others had: TTFT of one prompt a run.
constexpr Noise kUnsureNoise = {0.80, 2.4, 2.6};

// What a figure is of. A model on a CPU waits for memory that neighbours use too, which no probe of the CPU's pace
// shows: steps at full pace are no surer there.
struct FigureOf {
  double host_frac = 1;    // part of the step that waits for the host
  bool on_cpu = false;     // the model runs on a CPU
  bool full_pace = false;  // it is of steps at full pace, or the CPU was hardly ever slow
  bool at_pace = false;    // of recorded steps, with the host at one pace
  bool unsure = false;  // threads waited for a CPU, and it is not of steps in which they did not; or of too few steps
};
Noise noise_of(const FigureOf& figure);

// A CPU that was slow in fewer probes than that was at full pace.
constexpr double kSeldomSlow = 0.05;
bool at_full_pace(const std::optional<double>& cpu_slow_frac);

// Threads that were ready to run and had no CPU for a larger part of the time shared it with something else. Equal runs
// on a machine with nothing else on it waited 0.6 to 2.4 %, with two busy neighbours on two CPUs 19 to 49 %.
constexpr double kContended = 0.05;
bool is_contended(const std::optional<double>& cpu_waited_frac);

}  // namespace llmprof::diff
