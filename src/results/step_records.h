// Rows about where the time of steps goes: idle time of the GPU, host time, the critical path, what would be otherwise,
// and the places in the program.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/fields.h"
#include "results/values.h"

namespace llmprof {

enum class SiteKind : uint8_t { kOperator, kApi, kPython };  // where the host was
std::string_view name_of(SiteKind kind);

#define LLMPROF_IDLE_FIELDS(F)                                                     \
  F(std::string, cause, "", "Why the GPU was idle")                                \
  F(std::string, stage, "", "Stage")                                               \
  F(int64_t, device, "", "CUDA device ordinal")                                    \
  F(int64_t, gaps, "", "Idle intervals that have this cause, whole or in part")    \
  F(Milliseconds, total_ms, "ms", "Idle time")                                     \
  F(OptDouble, wall_share, "frac", "Part of the stage's recorded wall time")       \
  F(double, mean_us, "us", "Mean length")                                          \
  F(OptText, top_operator, "", "Operator in which the host spent most of it")      \
  F(OptDouble, top_operator_ms, "ms", "Idle time while the host was in it")        \
  F(OptText, top_api, "", "CUDA call in which the host spent most of it")          \
  F(OptDouble, top_api_ms, "ms", "Idle time while the host was in it")             \
  F(OptText, top_python, "", "Python function in which the host spent most of it") \
  F(OptDouble, top_python_ms, "ms", "Idle time while the host was in it")
LLMPROF_RECORD(IdleRecord, "idle", "GPU idle time by cause and stage", LLMPROF_IDLE_FIELDS)

#define LLMPROF_IDLE_SITE_FIELDS(F)                                          \
  F(std::string, stage, "", "Stage")                                         \
  F(int64_t, device, "", "CUDA device ordinal")                              \
  F(SiteKind, kind, "", "operator, api or python")                           \
  F(std::string, site, "", "Where the host was")                             \
  F(int64_t, gaps, "", "Idle intervals in part of which the host was there") \
  F(Milliseconds, total_ms, "ms", "GPU idle time meanwhile")                 \
  F(double, share, "frac", "Part of the idle time of the stage")
LLMPROF_RECORD(IdleSiteRecord, "idle_sites", "Where the host was while the GPU idled", LLMPROF_IDLE_SITE_FIELDS)

#define LLMPROF_HOST_FIELDS(F)                                                                   \
  F(std::string, stage, "", "Stage")                                                             \
  F(int64_t, device, "", "CUDA device ordinal")                                                  \
  F(KnownCount, operators, "", "Operator calls, enclosed ones included")                         \
  F(KnownMilliseconds, operators_ms, "ms", "Host time in operators, enclosed ones counted once") \
  F(int64_t, launches, "", "API calls that launched GPU work")                                   \
  F(Milliseconds, launch_ms, "ms", "Host time in those calls")                                   \
  F(OptDouble, launch_mean_us, "us", "launch_ms / launches")                                     \
  F(int64_t, syncs, "", "API calls that wait for the GPU")                                       \
  F(Milliseconds, sync_ms, "ms", "Host time in those calls")                                     \
  F(Milliseconds, gpu_busy_ms, "ms", "GPU time of the stage, overlap counted once")              \
  F(OptDouble, host_per_gpu, "frac", "Host time in operators and in launches outside them, over gpu_busy_ms")
LLMPROF_RECORD(HostRecord, "host", "Host time against GPU time per stage", LLMPROF_HOST_FIELDS)

#define LLMPROF_HOST_PLACE_FIELDS(F)                                                             \
  F(std::string, stage, "", "Stage")                                                             \
  F(int64_t, device, "", "CUDA device ordinal")                                                  \
  F(std::string, kind, "", "wait, copy, allocation, or host-code: 100 us or more between calls") \
  F(std::string, place, "", "The two innermost Python functions, with file and line")            \
  F(double, per_step, "", "Times per step")                                                      \
  F(OptDouble, host_ms_per_step, "ms", "Host time per step, of waits, copies and host code")     \
  F(std::string, stack, "", "All functions of the program, innermost first")
LLMPROF_RECORD(HostPlaceRecord, "host_places", "Python code that waits, copies, allocates or keeps the GPU waiting",
               LLMPROF_HOST_PLACE_FIELDS)

#define LLMPROF_LAUNCH_PLACE_FIELDS(F)                                                                              \
  F(std::string, stage, "", "Stage")                                                                                \
  F(int64_t, device, "", "CUDA device ordinal")                                                                     \
  F(std::string, place, "", "The two innermost Python functions but PyTorch's, with file and line")                 \
  F(double, gpu_ms_per_step, "ms", "Kernels and copies that it launches, mean of a step; overlap counted twice")    \
  F(double, gpu_frac, "frac", "Of all kernels and copies of the stage")                                             \
  F(double, per_step, "", "Kernels and copies per step")                                                            \
  F(int64_t, seen, "",                                                                                              \
    "Of them those whose launch was seen: of launches without a CUDA graph one of eight, drawn; of many one of 32") \
  F(std::string, stack, "", "All functions of one such launch, innermost first")
LLMPROF_RECORD(LaunchPlaceRecord, "launch_places",
               "Python code that launches the GPU's work, estimated from some launches", LLMPROF_LAUNCH_PLACE_FIELDS)

#define LLMPROF_CRITICAL_PATH_FIELDS(F)                                                                            \
  F(std::string, stage, "", "Stage")                                                                               \
  F(int64_t, device, "", "CUDA device ordinal")                                                                    \
  F(int64_t, steps, "", "Steps that were replayed: all that were recorded whole")                                  \
  F(Milliseconds, step_ms, "ms", "Mean window of these steps, as recorded; the parts below add up to it")          \
  F(Milliseconds, replayed_ms, "ms", "The same as replay gives it back")                                           \
  F(int64_t, judged, "", "Steps of them that no latency was learned from")                                         \
  F(OptDouble, error_median_frac, "frac", "Of these: median of |replayed - recorded| / recorded")                  \
  F(OptDouble, error_worst_frac, "frac", "Of these: the largest")                                                  \
  F(Milliseconds, host_code_ms, "ms", "The program and its framework, between CUDA calls")                         \
  F(Milliseconds, no_input_ms, "ms",                                                                               \
    "The program did nothing between CUDA calls: it slept, or waited for a request, another process or a file")    \
  F(Milliseconds, cuda_calls_ms, "ms", "Inside CUDA calls that wait for nothing")                                  \
  F(Milliseconds, launch_latency_ms, "ms", "From a launch to the start of what it launched")                       \
  F(Milliseconds, gpu_work_ms, "ms", "Kernels, copies and memsets")                                                \
  F(Milliseconds, gpu_gap_ms, "ms", "Between activities that follow each other on a stream or in a CUDA graph")    \
  F(Milliseconds, wake_up_ms, "ms", "From the end of what a CUDA call waited for to its return")                   \
  F(Milliseconds, unexplained_ms, "ms",                                                                            \
    "Host time that may have been a wait for another thread, and recorded less replayed time: below 0 if that is " \
    "more")                                                                                                        \
  F(std::string, not_recorded, "", "Dependencies that the recording does not hold and replay guesses; empty if none")
LLMPROF_RECORD(
    CriticalPathRecord, "critical_path",
    "What the time of a step consists of, along the longest chain of dependencies to its end; mean of its steps",
    LLMPROF_CRITICAL_PATH_FIELDS)

#define LLMPROF_CRITICAL_PATH_WORK_FIELDS(F)                                                            \
  F(std::string, stage, "", "Stage")                                                                    \
  F(int64_t, device, "", "CUDA device ordinal")                                                         \
  F(std::string, category, "", "What it is for, by the names of `categories`")                          \
  F(Milliseconds, ms, "ms", "On the path of a step; those of a stage add up to gpu_work_ms of its row") \
  F(double, share, "frac", "Part of step_ms there")
LLMPROF_RECORD(CriticalPathWorkRecord, "critical_path_work",
               "Kernels, copies and memsets on the critical path by what they are for, the most first",
               LLMPROF_CRITICAL_PATH_WORK_FIELDS)

#define LLMPROF_WHAT_IF_FIELDS(F)                                                                                    \
  F(std::string, what_if, "", "What is changed, by the names that `llmprof list what-ifs` has, joined by commas")    \
  F(std::string, stage, "", "Stage")                                                                                 \
  F(int64_t, device, "", "CUDA device ordinal")                                                                      \
  F(int64_t, steps, "", "Steps recorded whole that replay gives back within 5 %")                                    \
  F(double, step_ms, "ms", "Median step replayed without the recorder's cost where that is known, else as recorded") \
  F(double, then_ms, "ms", "Median step replayed with what is changed")                                              \
  F(double, gain_ms, "ms", "Median of what each step gains; below 0: it becomes longer")                             \
  F(OptDouble, ci95_low_ms, "ms",                                                                                    \
    "95 % interval of that (of three steps or more), by resampling the steps, wider by what replay is off")          \
  F(OptDouble, ci95_high_ms, "ms", "Its upper end")                                                                  \
  F(OptDouble, gain_frac, "frac", "gain_ms of step_ms")                                                              \
  F(OptDouble, tokens_factor, "",                                                                                    \
    "Of changes by which a step makes more tokens: tokens per second then, over now; unknown of all others")         \
  F(std::string, forbidden, "",                                                                                      \
    "Why the program cannot be changed so as it is, or why it is not known what the change would do; else empty")
LLMPROF_RECORD(WhatIfRecord, "what_ifs",
               "What steps would take if something were otherwise, by replay of their dependencies",
               LLMPROF_WHAT_IF_FIELDS)

// A sample: of each function's 1st, 2nd, 4th, 8th, ... launch. It tells where a kernel was launched from, not how often
// from each place.
#define LLMPROF_LAUNCH_SITE_FIELDS(F)                                                                  \
  F(std::string, kernel, "", "Kernel")                                                                 \
  F(std::string, site, "", "Who launched it, innermost first, without what every launch goes through") \
  F(int64_t, stacks, "", "Call stacks that show this site")                                            \
  F(int64_t, kernel_stacks, "", "Call stacks taken of this kernel: its 1st, 2nd, 4th, ... launch")     \
  F(int64_t, kernel_calls, "", "Times the kernel ran, graph replays included")                         \
  F(Milliseconds, kernel_ms, "ms", "GPU time of the kernel, whatever the site")                        \
  F(OptDouble, share, "frac", "Part of the GPU time of the whole recording")                           \
  F(std::string, stack, "", "One such stack: frames as module!function, innermost first, one a line")
LLMPROF_RECORD(LaunchSiteRecord, "launch_sites", "Where the most expensive kernels were seen to be launched from",
               LLMPROF_LAUNCH_SITE_FIELDS)

}  // namespace llmprof
