// What the stand-in for NVIDIA's libraries is told to do, and what it saw (fake_cuda.cc).
#pragma once

#include <cstddef>
#include <cstdint>

struct FakeCudaScript {
  // The driver.
  int version = 12080, devices = 1, init_result = 0;
  int cc_major = 9, cc_minor = 0, sms = 4, l2_bytes = 1 << 16;
  size_t memory_bytes = size_t{1} << 30;
  bool part = false;           // of a divided H200 (MIG): one of seven slices
  bool can_wait = true;        // cuStreamWaitValue32
  int fail_launch_after = -1;  // so many launches succeed, then this result for ever:
  int launch_result = 0;
  double clock_mhz = 1000;
  uint64_t kernel_ns = 10000;     // what a launch takes on the GPU
  uint64_t slow_kernel_from = 0;  // from this kernel on, three times as long at a third of the clock; 0: never
  // NVRTC.
  int nvrtc_major = 12, nvrtc_minor = 8;
  int compile_result = 0;
  // cuBLASLt.
  size_t cublaslt_version = 120804;
  int algorithms = 3, wrong_algorithm = -1;  // one that leaves its last column or row unwritten
  int heuristic_status = 0;
  // cuDNN; `algorithms` plans of each heuristic, those of the fallback numbered from 100 on.
  size_t cudnn_version = 91400;
  int cudnn_status = 0, cudnn_refused_plan = -1;
  int64_t cudnn_descriptors = 0;  // that were made and not destroyed
  // Seen.
  uint64_t launches = 0, compilations = 0, graph_launches = 0, allocations = 0, freed = 0, waits = 0;
};

extern "C" FakeCudaScript* fake_cuda_script();
