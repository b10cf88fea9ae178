// What calls of CUDA cost a program on this machine, with and without the recorder in its process.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "results/values.h"

namespace llmprof {

// Kernels in the graphs that are timed: in those of graph_32 and graph_256, and in the one that lies between two
// kernels in gpu_graph.
inline constexpr int kCostNodes[] = {32, 256};
inline constexpr int kGraphTurnNodes = 8;

// One kind of call as one process timed it (device/cuda/call_costs.h).
#define LLMPROF_CALL_COST_FIELDS(F)                                                                      \
  F(std::string, name, "", "kind of call, and what was done between two of them")                        \
  F(double, call_ns, "ns", "of a call on the host, or between two activities of the GPU; median")        \
  F(double, between_ns, "ns", "of the program's own work between two calls, 0 if there was none")        \
  F(double, iqr_frac, "frac", "interquartile range of the samples over their median")                    \
  F(int64_t, calls, "", "how many were timed")                                                           \
  F(double, pace_ns, "ns", "what a probe of the host's pace took meanwhile (base/pace_work.h); median")  \
  F(int64_t, start_unix_ns, "ns", "when that began: a recording of this process shows these calls then") \
  F(int64_t, end_unix_ns, "ns", "when it ended")
LLMPROF_RECORD(CallCost, "call_costs", "What calls of CUDA cost in one process", LLMPROF_CALL_COST_FIELDS)

// The same with and without the recorder, in turns within one process; of graphs in two before CUPTI 13.0.
#define LLMPROF_RECORDER_COST_FIELDS(F)                                                                               \
  F(double, plain_ns, "ns", "without the recorder: of calls at the full pace of the host, of what the GPU does ever") \
  F(double, recorded_ns, "ns", "with it, likewise")                                                                   \
  F(double, seen_ns, "ns",                                                                                            \
    "by the recording: of a call its time, of gpu_kernel and gpu_node from one's end to the next one's start; 0 of "  \
    "others")                                                                                                         \
  F(double, between_ns, "ns", "by how much the program's own work between two calls takes longer with the recorder")  \
  F(double, spread_ns, "ns", "by how much recorded_ns - plain_ns differed from the quickest times to the slowest")
LLMPROF_RECORD(RecorderCost, "recorder_costs", "What recording costs one kind of call", LLMPROF_RECORDER_COST_FIELDS)

// Not of a call: plain_ns is what a probe of the host's pace takes at best (base/pace_work.h).
inline constexpr const char* kHostPaceCost = "host_pace";

using RecorderCosts = std::map<std::string, RecorderCost>;

}  // namespace llmprof
