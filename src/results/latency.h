// TTFT, ITL, TPOT and warm-up: parts of the report (report.h).
#pragma once

#include <cstdint>
#include <string>

#include "base/stage.h"
#include "results/recording.h"
#include "results/values.h"

namespace llmprof {

// n, mean, sample standard deviation, order statistics. Percentiles interpolate linearly between closest ranks
// (position (n-1)*p in the sorted samples, Hyndman and Fan's type 7). With one sample the deviation is not known.
#define LLMPROF_SUMMARY_FIELDS(F)                                                  \
  F(int64_t, n, "", "Samples")                                                     \
  F(double, mean, "", "Arithmetic mean")                                           \
  F(OptDouble, stddev, "", "Sample standard deviation (n-1); null for one sample") \
  F(double, min, "", "Smallest")                                                   \
  F(double, p50, "", "Median")                                                     \
  F(double, p90, "", "90th percentile")                                            \
  F(double, p99, "", "99th percentile")                                            \
  F(double, max, "", "Largest")
LLMPROF_RECORD(Summary, "summary", "Distribution of samples", LLMPROF_SUMMARY_FIELDS)

// Steps of a stage that are warm-up, by cause.
#define LLMPROF_WARM_UP_FIELDS(F)                                                                                \
  F(std::string, stage, "", "Stage, without the word in brackets")                                               \
  F(int64_t, device, "", "CUDA device ordinal")                                                                  \
  F(WarmUpCause, cause, "",                                                                                      \
    "named (before the first named step), module-loading, compilation, graph-capture, allocation, first-calls, " \
    "unknown")                                                                                                   \
  F(int64_t, steps, "", "How many")                                                                              \
  F(Milliseconds, wall_ms, "ms", "Their time")                                                                   \
  F(OptDouble, excess_ms, "ms", "Part of it beyond the steady level of their shape; null where none is known")   \
  F(int64_t, steady_steps, "", "Steady steps of the stage; 0: it was never seen steady")
LLMPROF_RECORD(WarmUpRecord, "warm_up", "Steps that are in no other figure, and why", LLMPROF_WARM_UP_FIELDS)

// Definitions (docs/formulas.md):
//   TTFT  from the start of the first prefill window of a request to the end of the window that produced its first
//         token; windows of chunks and of vision stages directly before are part of it, those that the CPU does alone
//         included (preprocess), where a range of the program names them. Without the queue.
//   ITL   window of one decode or mixed step, one sample per step.
//   TPOT  of one request: sum of its decode windows / tokens they produced per sequence, that is the mean of its ITLs.
//         The first token is not included.
// Steps of warm-up (derive/steady.h) and of window edges (derive/steps.h) count for none of them, and so do requests
// with a step of warm-up before their first token.
//
// The headline is what steady requests typically take: medians, the first request beside them. Where no request is
// steady there is none but the first one's.
// Findings start from these figures (consequence.h).
#define LLMPROF_HEADLINE_FIELDS(F)                                                                                   \
  F(OptDouble, ttft_ms, "ms", "TTFT: the median over steady requests")                                               \
  F(IfKnown<StepTimeSource>, ttft_source, "",                                                                        \
    "unrecorded, replayed or recorded: what its steps are, as in undisturbed; left out for other tools' recordings") \
  F(OptDouble, ttft_ci95_low_ms, "ms",                                                                               \
    "Lower end of its 95 % interval: of this run's requests, and of what is not known of the recorder's cost; null " \
    "for fewer than three")                                                                                          \
  F(OptDouble, ttft_ci95_high_ms, "ms", "Upper end of the same")                                                     \
  F(OptDouble, ttft_p99_ms, "ms", "99th percentile of the same requests")                                            \
  F(int64_t, ttft_n, "", "How many requests those are")                                                              \
  F(IfKnown<double>, ttft_full_pace_ms, "ms",                                                                        \
    "Median of those among them whose CPU was at full pace all along (host_pace); left out for fewer than three")    \
  F(IfKnown<int64_t>, ttft_full_pace_n, "", "How many those are")                                                    \
  F(OptDouble, first_ttft_ms, "ms", "TTFT of the first request")                                                     \
  F(IfKnown<bool>, first_ttft_cold, "", "Whether warm-up is in it; left out where nothing tells")                    \
  F(IfKnown<bool>, ttft_in_doubt, "", "true: of the program's first and only request, cold or not: nothing tells")   \
  F(OptDouble, before_prompt_ms, "ms",                                                                               \
    "Median time from a step to the prompt that llmprof found after it: not in TTFT")                                \
  F(IfKnown<double>, ttft_other_model_frac, "frac",                                                                  \
    "Median part of TTFT, in recorded prompts, of passes of another model that stand before them and that the host " \
    "waits for: an encoder's, or a judge's of the answer before; left out where fewer than half have one")           \
  F(OptDouble, tpot_ms, "ms", "TPOT: itl_ms, where requests are known apart")                                        \
  F(OptDouble, itl_ms, "ms", "ITL: the median over steady steps")                                                    \
  F(IfKnown<StepTimeSource>, itl_source, "", "The same of ITL and TPOT")                                             \
  F(OptDouble, itl_ci95_low_ms, "ms", "Lower end of the 95 % interval of ITL and TPOT, as above")                    \
  F(OptDouble, itl_ci95_high_ms, "ms", "Upper end of the same")                                                      \
  F(OptDouble, itl_p99_ms, "ms", "99th percentile of the same steps")                                                \
  F(int64_t, itl_n, "", "How many steps those are")                                                                  \
  F(IfKnown<double>, itl_full_pace_ms, "ms", "The same of ITL and TPOT; left out for fewer than five")               \
  F(IfKnown<int64_t>, itl_full_pace_n, "", "How many those are")                                                     \
  F(OptDouble, first_itl_ms, "ms", "The first step after a first token")                                             \
  F(IfKnown<bool>, first_itl_cold, "", "Whether that is warm-up; left out where nothing tells")                      \
  F(OptDouble, output_tokens_per_s, "1/s", "While decoding: tokens made over the time of the same steps")
LLMPROF_RECORD(Headline, "headline", "What requests typically take: latency.headline", LLMPROF_HEADLINE_FIELDS)

#define LLMPROF_LATENCY_FIELDS(F)                                                 \
  F(OneRow<Headline>, headline, "", "What requests typically take")               \
  F(NamedRow<Summary>, ttft_ms, "ms", "Distribution over steady requests")        \
  F(NamedRow<Summary>, tpot_ms, "ms", "The same of TPOT, one sample per request") \
  F(NamedRow<Summary>, itl_ms, "ms", "The same of ITL, one sample per step")      \
  F(OptDouble, output_tokens_per_s, "1/s", "That of the headline")                \
  F(OptDouble, warmup_ms, "ms",                                                   \
    "Time that steps of warm-up took beyond the steady level of their shape; 0: there is none")
LLMPROF_RECORD(Latency, "latency", "TTFT, TPOT and ITL", LLMPROF_LATENCY_FIELDS)

}  // namespace llmprof
