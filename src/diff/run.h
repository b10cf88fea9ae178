// One run of a side, and the figures of it that are compared: headlines, and times of steps by kind and shape.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "results/diff.h"
#include "results/report.h"
#include "trace/trace.h"

namespace llmprof::diff {

struct Run {
  std::string name;  // as it was named
  Trace trace;       // derived
  Report report;     // of that trace, with every row
};
using Side = std::vector<Run>;  // repeats of one program

// A value with its own 95 % interval, of what this run alone shows.
struct Figure {
  double value = 0;
  std::optional<double> low, high;  // both or none
  int64_t samples = 0;
};

// Of requests or steps in which the CPU was at full pace all along (`full_pace`), or of all. TTFT and TPOT in ms, rate
// in tokens per second; never of steps.
std::optional<Figure> headline(const Report& report, DiffMetric metric, bool full_pace);

// Steady steps of one run that are alike: kind, device, sequences and tokens. What no recording says is -1.
struct StepGroup {
  StageKind kind = StageKind::kOther;
  std::string name;   // of the kind; of stages of which the kind has several, and of other ones, their own
  std::string stage;  // the report's name of the stage that most of them are in
  int32_t device = 0;
  int64_t sequences = -1, tokens = -1;
  int64_t context_low = -1, context_high = -1;
  std::vector<StepId> steps;  // in order of time
  bool whole_stage = false;   // all steady steps of that stage
  int64_t total_ns = 0;
};
// Those with most time first.
std::vector<StepGroup> step_groups(const Run& run);

// Whether a step is one that can be replayed: usual, served, with all its kernels.
bool is_recorded_whole(const Trace& trace, StepId step);

// Time of a step in ms: without the recorder where that is known, the median of the group and its interval.
std::optional<Figure> step_figure(const Run& run, const StepGroup& group);

// The median of those with kernels, without the recorder where that is known; empty where there are none.
std::optional<double> recorded_step_ms(const Run& run, const StepGroup& group);

// How much of a step waits for the host, 0 to 1: along its critical path, else by the GPU's idle share. 1 on a CPU, and
// where nothing tells: the host's noise is the larger one.
double host_frac(const Report& report, const StepGroup& group);
// The same for a headline: of the stage of that kind with most time.
double host_frac(const Run& run, StageKind kind);

// Share of probes in which the CPU was slow, of the process with most of them; empty where nothing was probed.
std::optional<double> cpu_slow_frac(const Report& report);
// Share of time in which its thread was ready to run and had no CPU; empty where that is not known.
std::optional<double> cpu_waited_frac(const Report& report);

// "1 sequence, 512 tokens"; empty where nothing is known.
std::string shape_text(const StepGroup& a, const StepGroup& b);

}  // namespace llmprof::diff
