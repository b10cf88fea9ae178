// Which kernels of a recording another profiler is to look at, and when: those with most GPU time in steady steps, from
// the first of these steps on, for as many launches as show each a few times.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "trace/trace.h"

namespace llmprof::drive {

struct HotKernel {
  std::string function;  // as Nsight Compute filters by (derive/kernel_function.h)
  int64_t calls = 0;     // in what was looked at: steady steps, else the whole recording
  int64_t total_ns = 0;
  double share = 0;     // of the kernels' time there
  int64_t kernels = 0;  // different names that share the function
  int64_t caught = 0;   // launches among those that are to be profiled
};

struct HotKernels {
  std::vector<HotKernel> kernels;  // most time first
  int64_t launch_skip = 0;         // launches of these functions, of one process, before the first steady step
  int64_t launch_count = 0;        // launches from there on until each was seen kCaughtEach times
  int32_t device = 0;
  int32_t compute_major = -1, compute_minor = -1;  // of the device; -1: not recorded
  std::vector<std::string> remarks;                // what of this is a guess, and why
};

constexpr int64_t kCaughtEach = 3;
constexpr int64_t kLaunchesMost = 300;  // Nsight Compute runs each several times over

struct HotOptions {
  size_t kernels = 5;
  std::string range{};  // launches inside NVTX ranges of this text only; empty: all
};

// `trace` is derived. Errors: no kernels, or no such range where there are others.
Result<HotKernels> find_hot_kernels(const Trace& trace, const HotOptions& options);

}  // namespace llmprof::drive
