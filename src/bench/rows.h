// The rows that `llmprof peaks` and `llmprof bench` print, declared once: CSV, JSON and docs/metrics.md walk the same
// declaration. Rates are in TFLOP/s (1e12), bandwidths in GB/s (1e9, bytes read plus bytes written), times in us.
#pragma once

#include <optional>
#include <string>

#include "base/fields.h"

namespace llmprof::bench {

using OptNumber = std::optional<double>;

#define LLMPROF_PEAK_COMMON_FIELDS(C)                                                                                \
  C(std::string, backend, "", "library and algorithm, or the kernel of our own, that reached it")                    \
  C(std::string, status, "", "passed, mistrusted, failed, unsupported, out-of-memory, interrupted or error")         \
  C(int64_t, n, "", "samples of the sustained regime")                                                               \
  C(OptNumber, iqr_frac, "frac", "interquartile range of the samples over their median")                             \
  C(OptNumber, sm_clock_mhz, "MHz", "median clock of the SMs, or of a CPU's cores, during it")                       \
  C(OptNumber, power_w, "W", "mean power during it")                                                                 \
  C(OptNumber, temperature_c, "C", "temperature during it")                                                          \
  C(std::string, throttle, "", "why the clock was held down, and in which share of the readings")                    \
  C(OptNumber, wait_frac, "frac", "of a CPU: share of the time that its threads waited for a core which others had") \
  C(bool, disturbed, "", "others had cores of a CPU meanwhile: so much can be reached, and perhaps more")            \
  C(int64_t, checked, "", "elements compared with the reference")                                                    \
  C(OptNumber, prepare_s, "s", "wall time of all shapes tried: buffers, fills, compiling, the library's algorithms") \
  C(OptNumber, check_s, "s", "wall time: checks of every candidate")                                                 \
  C(OptNumber, choose_s, "s", "wall time: choosing the fastest candidate")                                           \
  C(OptNumber, settle_s, "s", "wall time: until clock and power held still")                                         \
  C(OptNumber, timing_s, "s", "wall time: the samples")

#define LLMPROF_PEAK_FLOPS_FIELDS(C)                                                                            \
  C(std::string, dtype, "", "data type of the inputs")                                                          \
  C(std::string, path, "", "library: the best large matrix product; registers: operands that never leave them") \
  C(OptNumber, tflops, "TFLOP/s", "measured rate, a multiply-add as two")                                       \
  C(std::string, shape, "", "m x n x k of the best product")                                                    \
  C(OptNumber, of_datasheet_frac, "frac", "share of the data sheet's dense peak")                               \
  C(OptNumber, of_clock_frac, "frac", "share of that peak at the clock that was seen")                          \
  C(OptNumber, gap_to_first_frac, "frac", "how much slower the library's own first choice was")                 \
  LLMPROF_PEAK_COMMON_FIELDS(C)
LLMPROF_RECORD(PeakFlopsRow, "peak_flops", "Measured arithmetic ceilings of a device", LLMPROF_PEAK_FLOPS_FIELDS)

#define LLMPROF_PEAK_BANDWIDTH_FIELDS(C)                                                            \
  C(std::string, kind, "", "read, write, copy, triad; cache_read; h2d_pinned and the other copies") \
  C(OptNumber, gbs, "GB/s", "bytes read plus bytes written per second")                             \
  C(OptNumber, bytes, "bytes", "read plus written in one execution")                                \
  C(OptNumber, of_datasheet_frac, "frac", "share of the data sheet's memory bandwidth")             \
  LLMPROF_PEAK_COMMON_FIELDS(C)
LLMPROF_RECORD(PeakBandwidthRow, "peak_bandwidth", "Measured bandwidths of a device", LLMPROF_PEAK_BANDWIDTH_FIELDS)

#define LLMPROF_PEAK_LATENCY_FIELDS(C)                                           \
  C(std::string, kind, "", "launch_eager, launch_graph_node, sync and the like") \
  C(OptNumber, us, "us", "median of one")                                        \
  LLMPROF_PEAK_COMMON_FIELDS(C)
LLMPROF_RECORD(PeakLatencyRow, "peak_latency", "Measured fixed costs of a device", LLMPROF_PEAK_LATENCY_FIELDS)

#define LLMPROF_RIDGE_FIELDS(C)                                                                              \
  C(std::string, dtype, "", "data type of the arithmetic")                                                   \
  C(OptNumber, flop_per_byte, "FLOP/B", "intensity from which arithmetic is the limit: peak over bandwidth") \
  C(OptNumber, tflops, "TFLOP/s", "the peak in it")                                                          \
  C(OptNumber, gbs, "GB/s", "the bandwidth in it: measured, the highest of read, write, copy and triad")     \
  C(std::string, provenance, "", "measured or datasheet")
LLMPROF_RECORD(RidgeRow, "ridge", "Ridge points of the roofline", LLMPROF_RIDGE_FIELDS)

#define LLMPROF_CASE_FIELDS(C)                                                                                        \
  C(std::string, name, "", "operation")                                                                               \
  C(std::string, variant, "", "variant of the operation")                                                             \
  C(std::string, backend, "", "library and algorithm, or the kernel of our own, that was fastest")                    \
  C(std::string, shape, "", "the axes and their values")                                                              \
  C(std::string, dtype, "", "data type of the inputs")                                                                \
  C(std::string, regime, "", "cold: isolated, cache emptied; sustained: back to back over rotating buffers")          \
  C(std::string, status, "", "passed, mistrusted, failed, skipped, unsupported, out-of-memory, interrupted or error") \
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
  C(OptNumber, swing_frac, "frac",                                                                                    \
    "5th to 95th percentile over the median of single replays, where the clock swings at a power limit and a sample " \
    "is the mean of replays spread over the regime")                                                                  \
  C(int64_t, sets, "", "sets of buffers that the executions rotate over")                                             \
  C(bool, settled, "", "clock and power, or the times, held still before")                                            \
  C(bool, drifting, "", "the spread of the samples still changed when the regime's time was over")                    \
  C(OptNumber, noise_frac, "frac",                                                                                    \
    "standard deviation of the medians of stretches of time, beyond what the samples vary by")                        \
  C(OptNumber, wait_frac, "frac",                                                                                     \
    "of a CPU: share of the samples' time that its threads waited for a core which others had, added over threads")   \
  C(int64_t, waited, "", "samples left out because its threads waited")                                               \
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
    "the measured ceiling it is held against: a data type's arithmetic, memory at its mix of reads and writes, or "   \
    "cache")                                                                                                          \
  C(OptNumber, of_datasheet_frac, "frac", "the same with the data sheet's roof")                                      \
  C(std::string, bound, "", "compute, memory, latency or unknown, by the measured roofline")                          \
  C(OptNumber, memory_mib, "MiB", "buffers of one set")                                                               \
  C(OptNumber, peak_memory_mib, "MiB", "most that was allocated, all sets and workspaces")                            \
  C(OptNumber, sm_clock_mhz, "MHz", "median clock of the SMs, or of a CPU's cores")                                   \
  C(OptNumber, power_w, "W", "mean power")                                                                            \
  C(OptNumber, temperature_c, "C", "temperature")                                                                     \
  C(std::string, throttle, "", "why the clock was held down, and in which share of the readings")                     \
  C(OptNumber, gap_to_first_frac, "frac", "how much slower the library's own first choice was")                       \
  C(std::string, compared, "", "candidates compared last in this regime, the fastest first, with rough times in us")  \
  C(OptNumber, disturbed_us, "us",                                                                                    \
    "median of a stretch left out: slower by over 1 % than this and than the look before")                            \
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

}  // namespace llmprof::bench
