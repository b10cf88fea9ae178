// What recording did to the program, and its step times without that: parts of the report (report.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "results/values.h"

namespace llmprof {

// How it was found what recording cost: from unrecorded steps of the same run, whether or not CUPTI left meanwhile; by
// what recurs on the host; from a run without recording.
enum class DistortionMethod : uint8_t { kWithinRun, kWithinRunAttached, kRecurringHostEvent, kBaseline };
std::string_view name_of(DistortionMethod method);

// Where the time of a step without the recorder comes from: steps that nothing was recorded of, with CUPTI out of the
// process; recorded steps, replayed without what recording costs; or recorded steps as they are.
enum class StepTimeSource : uint8_t { kUnrecorded, kReplayed, kRecorded };
std::string_view name_of(StepTimeSource source);

#define LLMPROF_DISTORTION_FIELDS(F)                                                                              \
  F(std::string, stage, "", "Stage, or the host event that recurs")                                               \
  F(DistortionMethod, method, "", "within-run (CUPTI attached: it never left), recurring host event or baseline") \
  F(double, distortion_frac, "frac",                                                                              \
    "Ratio of the median step times with and without recording next to each other, less 1")                       \
  F(double, ci95_low_frac, "frac", "Lower end of its 95 % confidence interval (bootstrap)")                       \
  F(double, ci95_high_frac, "frac", "Upper end")                                                                  \
  F(int64_t, recorded_steps, "", "Steps with kernels recorded")                                                   \
  F(int64_t, unrecorded_steps, "", "Steps to compare with")                                                       \
  F(double, recorded_ms, "ms", "Their median with recording")                                                     \
  F(double, unrecorded_ms, "ms", "Their median without")
LLMPROF_RECORD(DistortionRecord, "distortion", "What recording did to step times", LLMPROF_DISTORTION_FIELDS)

// Medians over steady steps. Where both exist, the unrecorded and the replayed ones must agree.
#define LLMPROF_UNDISTURBED_FIELDS(F)                                                                                  \
  F(std::string, stage, "", "Stage")                                                                                   \
  F(int64_t, device, "", "CUDA device ordinal")                                                                        \
  F(StepTimeSource, source, "", "unrecorded, replayed, or recorded: which of the three step_ms is")                    \
  F(double, step_ms, "ms", "Time of a step without the recorder; with it where nothing else is known")                 \
  F(double, ci95_low_ms, "ms", "Lower end of its 95 % confidence interval (bootstrap, with the spread of costs)")      \
  F(double, ci95_high_ms, "ms", "Upper end")                                                                           \
  F(int64_t, recorded_steps, "", "Steps with kernels recorded")                                                        \
  F(OptDouble, recorded_ms, "ms", "Their median")                                                                      \
  F(int64_t, unrecorded_steps, "", "Steps with CUPTI out of the process")                                              \
  F(OptDouble, unrecorded_ms, "ms", "Their median")                                                                    \
  F(int64_t, replayed_steps, "", "Recorded steps that were replayed without what recording costs")                     \
  F(OptDouble, replayed_ms, "ms",                                                                                      \
    "Their median, by costs fitted to this program where it ran with and without the recorder (overhead.calls_factor)" \
    "; absent where `llmprof peaks` did not measure the costs here")                                                   \
  F(OptDouble, agree_frac, "frac",                                                                                     \
    "Steps replayed by what was measured on the machine alone over the unrecorded ones next to them, less 1: ten or "  \
    "fewer to either side of each change, three at least; median of changes")
LLMPROF_RECORD(UndisturbedRecord, "undisturbed", "Step times without the recorder", LLMPROF_UNDISTURBED_FIELDS)

// Of probes: the same work each time, on the thread that waits for the GPU, before a wait and between calls of
// math libraries, 5 ms apart or more.
#define LLMPROF_HOST_PACE_FIELDS(F)                                                                             \
  F(int64_t, process_id, "", "Operating system process id")                                                     \
  F(int64_t, probes, "", "How many")                                                                            \
  F(double, best_ns, "ns", "What one takes at full pace: the quickest of this run and of `llmprof peaks` here") \
  F(double, slow_frac, "frac",                                                                                  \
    "Share of probes that were slower than 0.92 of that, or before which the thread had waited for a CPU")      \
  F(OptDouble, waited_frac, "frac",                                                                             \
    "Share of time in which the thread was ready to run and had no CPU; null where the system does not say")
LLMPROF_RECORD(HostPaceRecord, "host_pace", "How fast the CPU of the program was, by process", LLMPROF_HOST_PACE_FIELDS)

#define LLMPROF_STEP_FIELDS(F)                                                                                       \
  F(std::string, stage, "", "Stage")                                                                                 \
  F(int64_t, device, "", "CUDA device ordinal")                                                                      \
  F(int64_t, start_unix_ns, "ns", "When it began, CLOCK_REALTIME; from the start of the file where it does not say") \
  F(int64_t, duration_ns, "ns", "How long it lasted, as it was")                                                     \
  F(std::string, recording, "", "recorded, whole-graphs, unrecorded (without CUPTI), attached (with it), edge")      \
  F(bool, warm_up, "", "It is in no other figure")                                                                   \
  F(OptDouble, undisturbed_ms, "ms", "How long without llmprof's recorder; absent where that is not known")          \
  F(IfKnown<double>, host_pace_frac, "frac",                                                                         \
    "How fast its CPU did the probes meanwhile (host_pace), 1: at full pace; left out where that is not known")
LLMPROF_RECORD(StepRecord, "steps", "Every step, at most 20,000 of them", LLMPROF_STEP_FIELDS)

#define LLMPROF_RECORDED_WINDOW_FIELDS(F)                                              \
  F(int64_t, process_id, "", "Operating system process id")                            \
  F(int64_t, start_unix_ns, "ns", "When it began, CLOCK_REALTIME")                     \
  F(int64_t, duration_ns, "ns", "How long it lasted")                                  \
  F(std::string, level, "", "off, light (ranges only), default (kernels too) or deep") \
  F(std::string, reason, "", "Why recording changed then: start, unrecorded, attaching, detached, control, ...")
LLMPROF_RECORD(RecordedWindowRecord, "recorded", "How much was recorded, over time", LLMPROF_RECORDED_WINDOW_FIELDS)

// The headline is the decode stage's, or that of the stage with most steps; null, with a reason under cannot_tell,
// where no steps without recording can be compared with.
#define LLMPROF_OVERHEAD_FIELDS(F)                                                                                    \
  F(OptDouble, distortion_frac, "frac", "The headline of the stages' figures")                                        \
  F(Interval95, ci95, "frac", "Its 95 % confidence interval")                                                         \
  F(std::string, stage, "", "It is about; empty if unknown")                                                          \
  F(std::string, method, "", "How it was found, as in the table")                                                     \
  F(std::vector<DistortionRecord>, stages, "", "What recording did to the steps of each stage")                       \
  F(Milliseconds, recorded_ms, "ms", "Profiler activity that the recording itself lists")                             \
  F(int64_t, records, "", "How many records those are")                                                               \
  F(OptDouble, run_frac, "frac",                                                                                      \
    "Mean slow-down of the run by recording, by the pace of its steps, measured while it ran")                        \
  F(OptDouble, budget_frac, "frac", "What it was to be at most (`--budget`)")                                         \
  F(OptDouble, switching_ms, "ms", "In which the recorder was attached, detached or switched on")                     \
  F(OptInt, switching_steps, "", "Steps that were held up by that, which are window edges")                           \
  F(OptDouble, windows_p99_ms, "ms",                                                                                  \
    "99th percentile of the steps of `stage` while windows were open, with those at their edges")                     \
  F(OptDouble, pauses_p99_ms, "ms", "The same of its steps of which nothing was recorded")                            \
  F(OptDouble, calls_factor, "",                                                                                      \
    "So many times what `llmprof peaks` measured a recorded launch, copy and wait cost here, by the steps to either " \
    "side of changes of recording, weighed against 1")                                                                \
  F(OptDouble, calls_factor_error, "", "Its standard error")                                                          \
  F(OptInt, calls_factor_changes, "", "How many changes it comes from")
LLMPROF_RECORD(OverheadReport, "overhead", "What recording cost", LLMPROF_OVERHEAD_FIELDS)

}  // namespace llmprof
