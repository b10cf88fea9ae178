// Ceilings that `llmprof peaks` measured on a device, as they are kept for later reports (hardware/measured.h).
// Rates are in TFLOP/s (1e12), bandwidths in GB/s (1e9, bytes read plus bytes written), times in us.
#pragma once

#include <map>
#include <string>

#include "results/call_costs.h"
#include "results/values.h"

namespace llmprof {

#define LLMPROF_MEASURED_RATE_FIELDS(F)                                                                     \
  F(double, value, "", "TFLOP/s, GB/s or us")                                                               \
  F(std::string, how, "", "shape and library, or bytes moved")                                              \
  F(double, iqr_frac, "frac", "interquartile range of the samples over their median")                       \
  F(OptDouble, clock_mhz, "MHz", "median clock during it")                                                  \
  F(OptDouble, power_w, "W", "mean power during it")                                                        \
  F(bool, quick, "", "of a short measurement: gives way to a full one, never the other way round on a GPU") \
  F(bool, disturbed, "", "of a CPU whose cores other programs had: so much can be reached, perhaps more")
LLMPROF_RECORD(MeasuredRate, "measured_rates", "Ceilings of a device that are kept for reports",
               LLMPROF_MEASURED_RATE_FIELDS)

using MeasuredRates = std::map<std::string, MeasuredRate>;

#define LLMPROF_MEASURED_CEILINGS_FIELDS(F)                                                                        \
  F(std::string, device_key, "", "what finds the device again: a GPU's uuid and driver; a CPU's name and threads") \
  F(std::string, name, "", "of the device")                                                                        \
  F(std::string, uuid, "", "of a GPU")                                                                             \
  F(std::string, driver, "", "its version, of a GPU")                                                              \
  F(std::string, tool_version, "", "version of llmprof")                                                           \
  F(int64_t, unix_s, "s", "when it was measured")                                                                  \
  F(IfKnown<int64_t>, cache_bytes, "bytes", "of the last-level cache")                                             \
  F(MeasuredRates, library_tflops, "TFLOP/s", "matrix products of libraries, by data type")                        \
  F(MeasuredRates, unit_tflops, "TFLOP/s", "arithmetic on registers alone, by data type")                          \
  F(MeasuredRates, bandwidth_gbs, "GB/s", "read, write, copy, triad, cache_read, h2d, d2h, ...")                   \
  F(MeasuredRates, latency_us, "us", "launch_eager, launch_graph_node, sync, ...")                                 \
  F(RecorderCosts, recorder_ns, "ns", "what recording costs: launch_0k, launch_64k, graph_32, gpu_kernel, ...")
LLMPROF_RECORD(MeasuredCeilings, "ceilings", "What llmprof peaks keeps of a device", LLMPROF_MEASURED_CEILINGS_FIELDS)

}  // namespace llmprof
