// What `llmprof diff` answers: two or more sides, each one run or repeats of it, stage by stage, kernel by kernel.
// Every other side is compared with the first; `side` of a row says which one it is about. Changes are b / a - 1: below
// 0 is faster for times. Rows of shares (`attribution`) add up, with `unattributed_ms`, to b - a.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/stage.h"
#include "results/report.h"
#include "results/values.h"

namespace llmprof {

enum class DiffVerdict : uint8_t { kFaster, kSlower, kSame, kAmbiguous, kCount };
std::string_view name_of(DiffVerdict verdict);  // "FASTER"

enum class DiffMetric : uint8_t { kTtft, kTpot, kRate, kStep, kStepAtPace, kCount };
std::string_view name_of(DiffMetric metric);  // "ttft"

// What is exchanged between two runs to tell where their difference comes from.
enum class DiffPart : uint8_t {
  kKernelReplaced,  // another kernel, or several, in the place of one
  kKernelSlower,    // the same kernel takes another time, at equal clock
  kClock,           // the SM clock
  kLaunch,          // what launching takes: the calls, and from a call to the start of what it launched
  kWait,            // waits for the GPU: how many, and what waking up takes
  kCopy,            // copies between host and GPU, and inside it
  kHost,            // host code between CUDA calls
  kCount,           // how many launches there are, with what belongs to those that one side alone has
  kPace,            // by how much longer the host takes for the same code and calls, whatever they are (diff/pace.h)
  kOther            // gaps between activities on the GPU, and calls that are none of these
};
inline constexpr size_t kDiffParts = 10;
std::string_view name_of(DiffPart part);  // "kernel-replaced"

enum class DiffPresence : uint8_t { kBoth, kReplaced, kGone, kNew };
std::string_view name_of(DiffPresence presence);  // "both", "replaced", "gone", "new"

enum class GateState : uint8_t { kHolds, kBroken, kAmbiguous };
std::string_view name_of(GateState state);  // "holds"

#define LLMPROF_DIFF_SIDE_FIELDS(F)                                                                                \
  F(std::vector<std::string>, runs, "", "Its runs as they were named: repeats of one program")                     \
  F(OptText, device, "", "Name of the GPU, or of the CPU where the model ran on one")                              \
  F(OptText, driver, "", "Version of NVIDIA's driver")                                                             \
  F(OptDouble, sm_clock_mhz, "MHz", "Median SM clock in the stage with most time, median of the runs")             \
  F(OptDouble, power_cap_w, "W", "Power limit of the GPU")                                                         \
  F(OptDouble, cpu_slow_frac, "frac", "Share of probes in which the CPU was slow (host_pace), median of the runs") \
  F(OptDouble, cpu_waited_frac, "frac", "Share of time in which the program waited for a CPU (host_pace), likewise")
LLMPROF_RECORD(DiffSide, "diff_sides", "What is compared", LLMPROF_DIFF_SIDE_FIELDS)

#define LLMPROF_DIFF_COMPARABLE_FIELDS(F)                                                                     \
  F(bool, yes, "", "Clocks, power limit, GPU and driver are the same, as far as the recordings say")          \
  F(std::vector<std::string>, differs, "", "What differs: driver 570 -> 580; side N where there are several") \
  F(std::vector<std::string>, not_known, "", "Which of these facts some recording does not hold")
LLMPROF_RECORD(DiffComparable, "diff_comparable", "Whether the machines were the same", LLMPROF_DIFF_COMPARABLE_FIELDS)

#define LLMPROF_DIFF_SHARE_FIELDS(F)                                                                           \
  F(DiffPart, part, "", "kernel-replaced, kernel-slower, clock, launch, wait, copy, host, count, pace, other") \
  F(std::string, name, "", "The kernel, call or line of code; the part in words where it is no single one")    \
  F(double, delta_ms, "ms", "Part of b - a that comes of it, the mean over all orders in which parts are exchanged")
LLMPROF_RECORD(DiffShare, "diff_attribution", "Where a difference comes from, the largest first",
               LLMPROF_DIFF_SHARE_FIELDS)

#define LLMPROF_DIFF_STAGE_FIELDS(F)                                                                                 \
  F(int64_t, side, "", "Which side is compared with the first: 1 is the second word")                                \
  F(KeyText, kind, "", "Kind of the stage: prefill, decode, mixed, vision, speculative; its name where it is other") \
  F(KeyText, shape, "", "Sequences, tokens and context of its steps; empty where no recording says")                 \
  F(OptInt, device, "", "CUDA device ordinal of steps; null for headlines")                                          \
  F(DiffMetric, metric, "",                                                                                          \
    "ttft, tpot, rate (output tokens per second), step: the time of one step, or step-at-pace: the same with the "   \
    "host at the first side's pace, of recorded steps alone")                                                        \
  F(OptDouble, a, "", "Of the first side, ms (rate: 1/s): the median of its runs")                                   \
  F(OptDouble, b, "", "Of the other side")                                                                           \
  F(int64_t, a_samples, "", "Requests or steps behind it, all runs together")                                        \
  F(int64_t, b_samples, "", "The same of the other side")                                                            \
  F(bool, full_pace, "", "Both are of requests and steps in which the CPU was at full pace")                         \
  F(OptDouble, change_frac, "frac", "b / a - 1")                                                                     \
  F(Interval95, ci95, "frac", "Its 95 % interval; null where one prompt or step, or waits for a CPU, leave it open") \
  F(OptDouble, noise_frac, "frac",                                                                                   \
    "By so much two such sides differ in 95 of 100 cases if nothing was changed; as ci95")                           \
  F(std::string, noise_source, "", "repeats, or model: where that comes from")                                       \
  F(DiffVerdict, verdict, "", "FASTER, SLOWER, SAME or AMBIGUOUS")                                                   \
  F(std::string, reason, "", "What decided")                                                                         \
  F(std::vector<DiffShare>, attribution, "", "Where it comes from, the largest first; empty where nothing tells")    \
  F(OptText, attributed_by, "", "replay, or sums: kernels and calls added up; null without attribution")             \
  F(OptDouble, unattributed_ms, "ms", "b - a less all of these")
LLMPROF_RECORD(DiffStage, "diff_stages", "Stages of both sides, matched by kind and shape", LLMPROF_DIFF_STAGE_FIELDS)

#define LLMPROF_DIFF_OPERATION_FIELDS(F)                                  \
  F(int64_t, side, "", "As in the stages")                                \
  F(std::string, kind, "", "Stage")                                       \
  F(std::string, name, "", "Category of GPU work, or cause of idle time") \
  F(bool, idle, "", "It is time in which the GPU did nothing")            \
  F(double, a_ms, "ms", "Per step of the first side, median of the runs") \
  F(double, b_ms, "ms", "Per step of the other side")                     \
  F(OptDouble, a_share, "frac", "Of the step")                            \
  F(OptDouble, b_share, "frac", "The same of the other side")             \
  F(double, change_ms, "ms", "b_ms - a_ms")
LLMPROF_RECORD(DiffOperation, "diff_operations", "Where the time of a step goes, before and after",
               LLMPROF_DIFF_OPERATION_FIELDS)

#define LLMPROF_DIFF_KERNEL_FIELDS(F)                                                                   \
  F(int64_t, side, "", "As in the stages")                                                              \
  F(std::string, kind, "", "Stage")                                                                     \
  F(std::string, role, "", "What it is for: category, with the arithmetic's shape where that is known") \
  F(DiffPresence, presence, "", "both, replaced (another kernel in the same role), gone or new")        \
  F(OptText, a_name, "", "Kernel of the first side")                                                    \
  F(OptText, b_name, "", "Kernel of the other side")                                                    \
  F(double, a_calls, "", "Per step")                                                                    \
  F(double, b_calls, "", "Per step")                                                                    \
  F(double, a_ms, "ms", "Per step")                                                                     \
  F(double, b_ms, "ms", "Per step")                                                                     \
  F(double, change_ms, "ms", "b_ms - a_ms")                                                             \
  F(OptDouble, mean_change_frac, "frac", "Of one call: its mean time after over before, less 1")
LLMPROF_RECORD(DiffKernel, "diff_kernels", "Kernels of both sides, matched by role and operator, then name",
               LLMPROF_DIFF_KERNEL_FIELDS)

#define LLMPROF_DIFF_OPERATOR_FIELDS(F)                                       \
  F(int64_t, side, "", "As in the stages")                                    \
  F(std::string, kind, "", "Stage")                                           \
  F(std::string, name, "", "Operator of the framework")                       \
  F(double, a_calls, "", "Per step")                                          \
  F(double, b_calls, "", "Per step")                                          \
  F(double, a_cpu_ms, "ms", "Host time per step, without enclosed operators") \
  F(double, b_cpu_ms, "ms", "The same of the other side")                     \
  F(double, a_gpu_ms, "ms", "GPU time per step that it launched itself")      \
  F(double, b_gpu_ms, "ms", "The same of the other side")
LLMPROF_RECORD(DiffOperator, "diff_operators", "Operators of both sides, matched by name", LLMPROF_DIFF_OPERATOR_FIELDS)

#define LLMPROF_DIFF_GATE_FIELDS(F)                              \
  F(int64_t, side, "", "As in the stages")                       \
  F(std::string, expression, "", "As it was given to --fail-on") \
  F(GateState, state, "", "holds, broken or ambiguous")          \
  F(std::string, reason, "", "The figures that decided")
LLMPROF_RECORD(DiffGate, "diff_gates", "What --fail-on asked for", LLMPROF_DIFF_GATE_FIELDS)

#define LLMPROF_DIFF_FIELDS(F)                                                                           \
  F(std::string, tool_version, "", "Version of llmprof")                                                 \
  F(std::vector<DiffSide>, sides, "", "What is compared; the first is what the others are held against") \
  F(DiffComparable, comparable, "", "Whether the machines were the same")                                \
  F(std::vector<DiffStage>, stages, "", "Headlines and steps of each stage")                             \
  F(std::vector<DiffOperation>, operations, "", "Where the time of a step goes")                         \
  F(std::vector<DiffKernel>, kernels, "", "Kernels; the largest changes first")                          \
  F(std::vector<DiffOperator>, operators, "", "Operators; empty where a recording holds none")           \
  F(std::vector<DiffGate>, gates, "", "Of --fail-on")                                                    \
  F(std::vector<CannotTell>, cannot_tell, "", "What this comparison does not answer")
LLMPROF_RECORD(DiffResult, "diff", "What differs between runs, and why", LLMPROF_DIFF_FIELDS)

}  // namespace llmprof
