// What Nsight Compute's counters say of each kernel by itself: arithmetic, traffic, shares of what the GPU can do, and
// what its warps wait for. Names of metrics and formulas: docs/formats/ncu.md.
#pragma once

#include <array>
#include <string_view>
#include <utility>
#include <vector>

#include "results/report.h"
#include "trace/trace.h"

namespace llmprof {

constexpr size_t kInstructionWidths = 3;  // of thread instructions: 32, 16 and 64 bits

struct KernelFigures {
  OptDouble duration_ns, read, write, traffic, flops;  // bytes, FLOPs
  std::array<OptDouble, kInstructionWidths> width_flops;
  OptDouble tensor_flops;
  DType dtype = DType::kUnknown;
  // Parts of 1: occupancy, SM, memory, DRAM, tensor pipe, L1 and L2 hits.
  std::array<OptDouble, 7> shares;
  bool hit_rate_above_one = false;
  std::vector<std::pair<std::string_view, double>> stalls;  // parts of the warps' time; names lie in the trace
};

// By row of profiled_kernels. What was not counted is not known.
std::vector<KernelFigures> figures_of_kernels(const Trace& trace);

}  // namespace llmprof
