// What `llmprof bench` answers: measured cases, parts of a model's steps, and two runs compared. Rates are in TFLOP/s
// (1e12), bandwidths in GB/s (1e9, bytes read plus bytes written), times in us.
#pragma once

#include <string>
#include <vector>

#include "base/record_reader.h"
#include "results/bound.h"
#include "results/measured_device.h"

namespace llmprof::bench {

enum class Regime : uint8_t { kNone, kCold, kSustained, kCount };  // kNone: not timed
std::string_view name_of(Regime regime);                           // "cold"; of kNone nothing

#define LLMPROF_CASE_FIELDS(C)                                                                                        \
  C(std::string, name, "", "operation")                                                                               \
  C(std::string, variant, "", "variant of the operation")                                                             \
  C(std::string, backend, "", "library and algorithm, or the kernel of our own, that was fastest")                    \
  C(std::string, shape, "", "the axes and their values")                                                              \
  C(std::string, dtype, "", "data type of the inputs")                                                                \
  C(Regime, regime, "", "cold: isolated, cache emptied; sustained: back to back over rotating buffers")               \
  C(CaseStatus, status, "", "passed, mistrusted, failed, unsupported, out-of-memory, interrupted or error")           \
  C(std::string, note, "", "why not passed, or what was left out")                                                    \
  C(int64_t, n, "", "samples that count")                                                                             \
  C(OptNumber, mean_us, "us", "mean of the samples")                                                                  \
  C(OptNumber, stddev_us, "us", "standard deviation of the samples (n - 1)")                                          \
  C(OptNumber, median_us, "us", "median")                                                                             \
  C(OptNumber, min_us, "us", "smallest")                                                                              \
  C(OptNumber, q1_us, "us", "first quartile")                                                                         \
  C(OptNumber, q3_us, "us", "third quartile")                                                                         \
  C(OptNumber, max_us, "us", "largest")                                                                               \
  C(OptNumber, p90_us, "us", "90th percentile")                                                                       \
  C(OptNumber, p99_us, "us", "99th percentile")                                                                       \
  C(OptNumber, iqr_frac, "frac", "interquartile range over the median")                                               \
  C(int64_t, launches_per_sample, "", "executions in one sample; times are of one execution")                         \
  C(OptNumber, spread_frac, "frac",                                                                                   \
    "5th to 95th percentile over the median of single replays, where the power limiter moves the clock and a sample " \
    "is the mean of replays spread over the regime")                                                                  \
  C(int64_t, sets, "", "sets of buffers that the executions rotate over")                                             \
  C(bool, settled, "", "clock and power, or the times, held still before")                                            \
  C(Added<bool>, drifting, "", "the spread of the samples still changed when the regime's time was over")             \
  C(OptNumber, noise_frac, "frac",                                                                                    \
    "standard deviation of the medians of stretches of time, beyond what the samples vary by")                        \
  C(OptNumber, wait_ratio, "",                                                                                        \
    "of a CPU: time that its threads waited for a core which others had, added over threads, over all time: 2 "       \
    "where two threads did nothing else")                                                                             \
  C(Added<int64_t>, waited, "", "samples left out because its threads waited")                                        \
  C(OptNumber, unwaited_us, "us", "the median without that waiting, at least; the median itself where none is left")  \
  C(int64_t, throttled, "", "samples left out because the clock was held down")                                       \
  C(OptNumber, flops, "", "FLOPs of one execution, a multiply-add as two")                                            \
  C(OptNumber, bytes_read, "bytes", "least traffic, each operand once")                                               \
  C(OptNumber, bytes_written, "bytes", "least traffic")                                                               \
  C(OptNumber, bytes, "bytes", "read plus written")                                                                   \
  C(OptNumber, tflops, "TFLOP/s", "FLOPs over the median")                                                            \
  C(OptNumber, gbs, "GB/s", "bytes over the median")                                                                  \
  C(OptNumber, intensity, "FLOP/B", "FLOPs over bytes")                                                               \
  C(OptNumber, of_ceiling_frac, "frac", "time at the measured roof over the median")                                  \
  C(std::string, ceiling_kind, "",                                                                                    \
    "the measured ceiling it is compared with: a data type's arithmetic, memory at its mix of reads and writes, or "  \
    "cache")                                                                                                          \
  C(OptNumber, of_datasheet_frac, "frac", "the same with the data sheet's roof")                                      \
  C(Bound, bound, "", "compute, memory, latency or unknown, by the measured roofline")                                \
  C(OptNumber, memory_mib, "MiB", "buffers of one set")                                                               \
  C(OptNumber, peak_memory_mib, "MiB", "most that was allocated, all sets and workspaces")                            \
  C(OptNumber, sm_clock_mhz, "MHz", "median clock of the SMs, or of a CPU's cores")                                   \
  C(OptNumber, power_w, "W", "mean power")                                                                            \
  C(OptNumber, temperature_c, "C", "temperature")                                                                     \
  C(std::string, throttle, "", "why the clock was held down, and in which share of the readings")                     \
  C(OptNumber, gap_to_first_frac, "frac", "how much slower the library's own first choice was")                       \
  C(Added<std::string>, compared, "",                                                                                 \
    "candidates compared last in this regime, the fastest first, with rough times in us")                             \
  C(Added<bool>, choice_disturbed, "",                                                                                \
    "of a CPU: threads waited for a core whenever one of the candidates was timed: another may be faster")            \
  C(OptNumber, disturbed_us, "us",                                                                                    \
    "median of a stretch left out: slower by over 1 % than this one and the one before")                              \
  C(std::string, check_status, "", "passed, mistrusted, failed or skipped")                                           \
  C(OptNumber, check_worst_over_tolerance, "", "largest error over what the element may have")                        \
  C(OptNumber, check_rel_l2, "frac", "norm of the error over the norm of the reference")                              \
  C(int64_t, check_compared, "", "elements compared with the reference")                                              \
  C(OptNumber, prepare_s, "s", "wall time of the case: buffers, fills, compiling, the library's algorithms")          \
  C(OptNumber, check_s, "s", "wall time: running every candidate once and comparing with the reference")              \
  C(OptNumber, choose_s, "s", "wall time: choosing the fastest candidate")                                            \
  C(OptNumber, settle_s, "s", "wall time: until clock and power held still")                                          \
  C(OptNumber, timing_s, "s", "wall time: the samples of all regimes")                                                \
  C(int64_t, seed, "", "of the inputs")                                                                               \
  C(std::string, repro, "", "the command that measures it again")
LLMPROF_RECORD(CaseRow, "cases", "Measured cases, one row per regime", LLMPROF_CASE_FIELDS)

// A row with the samples behind it; they stand in JSON alone.
struct CaseRecord {
  CaseRow row;
  std::vector<double> samples_us;

  static constexpr TableInfo info() { return CaseRow::info(); }
  template <class V>
  void for_each_field(V&& visitor) const {
    row.for_each_field(visitor);
    visitor(FieldInfo{"samples_us", "us"}, samples_us);
  }
  template <class V>
  static void sentences(V&& visitor) {
    CaseRow::sentences(visitor);
    visitor(FieldSentence{"samples_us", "us",
                          LLMPROF_SENTENCE("the samples, at most 512, evenly thinned; of one execution each")});
  }
  // What makes two rows the same case: operation, variant, shape, data type, seed; and the same row: the regime as
  // well.
  std::string case_key() const;
  std::string key() const;
  bool timed() const { return row.median_us.has_value(); }
};

#define LLMPROF_MODEL_STEP_FIELDS(C)                                                                  \
  C(std::string, step, "", "prefill or decode, with batch and tokens")                                \
  C(std::string, part, "", "part of the model: qkv, o, gate_up, down, lm_head, attention, norm, ...") \
  C(std::string, name, "", "operation that stands for it")                                            \
  C(std::string, variant, "", "variant of the operation")                                             \
  C(std::string, shape, "", "the axes and their values")                                              \
  C(std::string, dtype, "", "data type of the inputs")                                                \
  C(int64_t, calls, "", "in one step: layers that have it")                                           \
  C(OptNumber, us, "us", "median of one call, sustained; cold where only that was measured")          \
  C(OptNumber, total_us, "us", "of all calls of the step")                                            \
  C(OptNumber, share_frac, "frac", "of the step's sum")                                               \
  C(std::optional<Bound>, bound, "", "compute, memory, latency or unknown, by the measured roofline")
LLMPROF_RECORD(ModelStepRow, "model_steps", "Parts of a model's steps, measured one by one", LLMPROF_MODEL_STEP_FIELDS)

// What rows are comparable by: where, with what and how they were measured.
#define LLMPROF_RUN_FACTS_FIELDS(C)                              \
  C(std::string, tool_version, "", "version of llmprof")         \
  C(std::string, device_key, "", "as in device")                 \
  C(std::string, device_name, "", "as in device")                \
  C(std::string, driver, "", "its version")                      \
  C(std::string, libraries, "", "cuBLASLt 13.1.0, cuDNN 9.19.0") \
  C(std::string, protocol, "", "every number of the protocol of measurement")
LLMPROF_RECORD(RunFacts, "facts", "What rows are comparable by", LLMPROF_RUN_FACTS_FIELDS)

#define LLMPROF_BENCH_FIELDS(C)                                                                          \
  C(MeasuredDevice, device, "", "what was measured")                                                     \
  LLMPROF_RUN_FACTS_FIELDS(C)                                                                            \
  C(IfKnown<std::string>, ceilings_remark, "", "which of the measured ceilings may be too low, and why") \
  C(bool, interrupted, "", "cases were left")                                                            \
  C(std::vector<CaseRecord>, cases, "", "one row per regime")                                            \
  C(IfAny<std::vector<ModelStepRow>>, model_steps, "", "of --model: parts of its steps")
LLMPROF_RECORD(BenchFields, "bench", "Measured operations", LLMPROF_BENCH_FIELDS)

inline constexpr std::string_view kBenchSchema = "llmprof.bench/1";

struct BenchResult : BenchFields {
  std::vector<std::string> sweeps;           // axes through which the cases went: each has its sentence
  std::string model;                         // of model_steps
  std::vector<std::string> not_in_the_sums;  // what of the model has no operation here
};

enum class Verdict : uint8_t { kSame, kFast, kSlow, kAmbiguous, kCannotCompare, kCount };
std::string_view name_of(Verdict verdict);  // "SAME", "CANNOT-COMPARE"

enum class Drifting : uint8_t { kNeither, kBefore, kNow, kBoth };
std::string_view name_of(Drifting runs);  // of kNeither nothing

#define LLMPROF_COMPARISON_FIELDS(C)                                                                                   \
  C(std::string, name, "", "operation")                                                                                \
  C(std::string, variant, "", "variant of the operation")                                                              \
  C(std::string, shape, "", "the axes and their values")                                                               \
  C(std::string, dtype, "", "data type of the inputs")                                                                 \
  C(Regime, regime, "", "cold or sustained")                                                                           \
  C(OptNumber, old_us, "us", "median before")                                                                          \
  C(OptNumber, new_us, "us", "median now")                                                                             \
  C(OptNumber, ratio, "", "median now over median before")                                                             \
  C(OptNumber, ratio_low, "",                                                                                          \
    "lower end of the ratio's 95 % interval: bootstrap of both samples, noise between stretches of time, and waiting " \
    "for cores")                                                                                                       \
  C(OptNumber, ratio_high, "", "upper end; empty where waiting leaves none")                                           \
  C(OptNumber, noise_frac, "frac",                                                                                     \
    "of the ratio: what both runs' medians of stretches of time vary by, beyond their samples; empty where neither "   \
    "run says")                                                                                                        \
  C(OptNumber, wait_ratio, "", "of a CPU: the larger of both runs': time its threads waited for a core over its time") \
  C(Drifting, drifting, "", "before, now or both: the run whose spread still changed when the time was over")          \
  C(OptNumber, cycles_ratio, "", "the ratio in cycles: times the clock now over the clock before")                     \
  C(Verdict, verdict, "", "SAME, FAST, SLOW, AMBIGUOUS, or CANNOT-COMPARE")                                            \
  C(std::string, reason, "", "what decided, or what was in the way")
LLMPROF_RECORD(ComparisonRow, "comparison", "Two runs compared case by case", LLMPROF_COMPARISON_FIELDS)

#define LLMPROF_COMPARISON_RESULT_FIELDS(C)                             \
  C(std::vector<ComparisonRow>, rows, "", "every row of the later run") \
  C(std::vector<std::string>, changed, "", "what differs between the runs: driver 570 -> 580")
LLMPROF_RECORD(ComparisonResult, "bench_comparison", "Two runs of the same cases", LLMPROF_COMPARISON_RESULT_FIELDS)

}  // namespace llmprof::bench
