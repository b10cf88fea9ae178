// What `llmprof peaks` answers: the ceilings of a device. Rates are in TFLOP/s (1e12), bandwidths in GB/s (1e9, bytes
// read plus bytes written), times in us.
#pragma once

#include <string>
#include <vector>

#include "results/measured_device.h"

namespace llmprof::bench {

// How arithmetic was driven: by a library's matrix products, or on operands that never leave the registers.
enum class PeakPath : uint8_t { kLibrary, kRegisters };
std::string_view name_of(PeakPath path);

enum class PeakSource : uint8_t { kMeasured, kDatasheet };
std::string_view name_of(PeakSource source);

#define LLMPROF_PEAK_COMMON_FIELDS(C)                                                                                  \
  C(std::string, backend, "", "library and algorithm, or the kernel of our own, that reached it")                      \
  C(CaseStatus, status, "", "passed, mistrusted, failed, unsupported, out-of-memory, interrupted or error")            \
  C(int64_t, n, "", "samples of the sustained regime")                                                                 \
  C(OptNumber, iqr_frac, "frac", "interquartile range of the samples over their median")                               \
  C(OptNumber, sm_clock_mhz, "MHz", "median clock of the SMs, or of a CPU's cores, during it")                         \
  C(OptNumber, power_w, "W", "mean power during it")                                                                   \
  C(OptNumber, temperature_c, "C", "temperature during it")                                                            \
  C(std::string, throttle, "", "why the clock was held down, and in which share of the readings")                      \
  C(OptNumber, wait_ratio, "", "of a CPU: time that its threads waited for a core, added over threads, over all time") \
  C(bool, disturbed, "", "others had cores of a CPU meanwhile: so much can be reached, and perhaps more")              \
  C(int64_t, checked, "", "elements compared with the reference")                                                      \
  C(OptNumber, prepare_s, "s", "wall time of all shapes tried: buffers, fills, compiling, the library's algorithms")   \
  C(OptNumber, check_s, "s", "wall time: checks of every candidate")                                                   \
  C(OptNumber, choose_s, "s", "wall time: choosing the fastest candidate")                                             \
  C(OptNumber, settle_s, "s", "wall time: until clock and power held still")                                           \
  C(OptNumber, timing_s, "s", "wall time: the samples")

#define LLMPROF_PEAK_FLOPS_FIELDS(C)                                                                         \
  C(std::string, dtype, "", "data type of the inputs")                                                       \
  C(PeakPath, path, "", "library: the best large matrix product; registers: operands that never leave them") \
  C(OptNumber, tflops, "TFLOP/s", "measured rate, a multiply-add as two")                                    \
  C(std::string, shape, "", "m x n x k of the best product")                                                 \
  C(OptNumber, of_datasheet_frac, "frac", "share of the data sheet's dense peak")                            \
  C(OptNumber, of_clock_frac, "frac", "share of that peak at the clock that was seen")                       \
  C(OptNumber, gap_to_first_frac, "frac", "how much slower the library's own first choice was")              \
  LLMPROF_PEAK_COMMON_FIELDS(C)
LLMPROF_RECORD(PeakFlopsRow, "flops", "Measured arithmetic ceilings of a device", LLMPROF_PEAK_FLOPS_FIELDS)

#define LLMPROF_PEAK_BANDWIDTH_FIELDS(C)                                                            \
  C(std::string, kind, "", "read, write, copy, triad; cache_read; h2d_pinned and the other copies") \
  C(OptNumber, gbs, "GB/s", "bytes read plus bytes written per second")                             \
  C(OptNumber, bytes, "bytes", "read plus written in one execution")                                \
  C(OptNumber, of_datasheet_frac, "frac", "share of the data sheet's memory bandwidth")             \
  LLMPROF_PEAK_COMMON_FIELDS(C)
LLMPROF_RECORD(PeakBandwidthRow, "bandwidth", "Measured bandwidths of a device", LLMPROF_PEAK_BANDWIDTH_FIELDS)

#define LLMPROF_PEAK_LATENCY_FIELDS(C)                                           \
  C(std::string, kind, "", "launch_eager, launch_graph_node, sync and the like") \
  C(OptNumber, us, "us", "median of one")                                        \
  LLMPROF_PEAK_COMMON_FIELDS(C)
LLMPROF_RECORD(PeakLatencyRow, "latency", "Measured fixed costs of a device", LLMPROF_PEAK_LATENCY_FIELDS)

#define LLMPROF_PEAK_RECORDER_FIELDS(C)                                                                              \
  C(std::string, kind, "",                                                                                           \
    "launch_0k to launch_2048k: a launch behind so many KiB of the program's own data; launch_wait: a kernel of "    \
    "10 us and the wait for it; copy_in, copy_out: of pageable memory, the latter waited for; graph_N: launching "   \
    "a graph of N kernels; gpu_kernel, gpu_node: from one to the next; gpu_graph: from one kernel to the next with " \
    "a graph of 8 between")                                                                                          \
  C(OptNumber, plain_us, "us", "without the recorder; of calls in the quickest turn, else the median")               \
  C(OptNumber, recorded_us, "us", "with it, likewise")                                                               \
  C(OptNumber, cost_us, "us", "the difference")                                                                      \
  C(OptNumber, spread_us, "us", "by how much the difference varied from the quickest turns to the slowest")          \
  C(OptNumber, between_us, "us", "by how much the program's own work between two calls took longer")                 \
  C(OptNumber, seen_us, "us",                                                                                        \
    "by the recording: of a call its time, of gpu_kernel and gpu_node the mean from the end of one to the start "    \
    "of the next; 0 of others")
LLMPROF_RECORD(PeakRecorderRow, "recorder", "What `llmprof run` costs a program on this machine",
               LLMPROF_PEAK_RECORDER_FIELDS)

#define LLMPROF_RIDGE_FIELDS(C)                                                                              \
  C(std::string, dtype, "", "data type of the arithmetic")                                                   \
  C(OptNumber, flop_per_byte, "FLOP/B", "intensity from which arithmetic is the limit: peak over bandwidth") \
  C(OptNumber, tflops, "TFLOP/s", "the peak in it")                                                          \
  C(OptNumber, gbs, "GB/s", "the bandwidth in it: measured, the highest of read, write, copy and triad")     \
  C(PeakSource, provenance, "", "measured or datasheet")
LLMPROF_RECORD(RidgeRow, "ridge", "Ridge points of the roofline", LLMPROF_RIDGE_FIELDS)

#define LLMPROF_PEAKS_FIELDS(C)                                               \
  C(std::string, tool_version, "", "version of llmprof")                      \
  C(MeasuredDevice, device, "", "what was measured")                          \
  C(std::vector<PeakFlopsRow>, flops, "", "arithmetic")                       \
  C(std::vector<PeakBandwidthRow>, bandwidth, "", "memory, cache and copies") \
  C(std::vector<PeakLatencyRow>, latency, "", "fixed costs")                  \
  C(std::vector<RidgeRow>, ridge, "", "ridge points")                         \
  C(std::vector<PeakRecorderRow>, recorder, "", "what recording costs here")  \
  C(bool, interrupted, "", "what follows was not measured")                   \
  C(std::vector<std::string>, diagnostics, "", "what is missing, and why")
LLMPROF_RECORD(PeaksFields, "peaks", "Ceilings of a device, measured", LLMPROF_PEAKS_FIELDS)

struct PeaksResult : PeaksFields {
  std::string kept;  // where the ceilings are kept, or why not: a sentence of the page
};

}  // namespace llmprof::bench
