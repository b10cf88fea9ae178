// What the planted CUDA programs share: error checks, NVTX ranges, options, the RESULT line. Each makes one mistake on
// purpose and does the same work without it when started with --healthy.
#pragma once

#include <cuda_runtime.h>
#include <nvtx3/nvToolsExt.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#define CHECK_CUDA(call)                                                                                   \
  do {                                                                                                     \
    const cudaError_t check_error = (call);                                                                \
    if (check_error != cudaSuccess) {                                                                      \
      std::fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(check_error)); \
      std::exit(1);                                                                                        \
    }                                                                                                      \
  } while (0)

namespace planted {

struct Options {
  bool healthy = false;
  double seconds = 3;
};

inline Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--healthy") == 0) {
      options.healthy = true;
    } else if (std::strcmp(argv[i], "--seconds") == 0 && i + 1 < argc) {
      options.seconds = std::atof(argv[++i]);
    } else {
      std::fprintf(stderr, "usage: %s [--healthy] [--seconds S]\n", argv[0]);
      std::exit(2);
    }
  }
  return options;
}

inline double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Reads and writes `n` floats once: about half a microsecond per MiB of `data` on an H200.
static __global__ void pass_over(float* data, size_t n) {
  const size_t stride = static_cast<size_t>(gridDim.x) * blockDim.x;
  for (size_t i = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += stride)
    data[i] = data[i] * 1.0001f + 1.0f;
}

inline void launch_pass(float* data, size_t n, cudaStream_t stream = nullptr) {
  pass_over<<<1056, 256, 0, stream>>>(data, n);
}

// Runs `step` until warm, then for the asked time, each call inside a range named decode_step.
template <class Step>
void repeat(const Options& options, Step step) {
  for (int i = 0; i < 3; ++i) step();
  CHECK_CUDA(cudaDeviceSynchronize());
  const double begin = now_s();
  long steps = 0;
  while (now_s() - begin < options.seconds) {
    nvtxRangePushA("decode_step");
    step();
    nvtxRangePop();
    ++steps;
  }
  CHECK_CUDA(cudaDeviceSynchronize());
  std::printf("RESULT {\"steps\": %ld, \"step_ms\": %.6f}\n", steps,
              1e3 * (now_s() - begin) / static_cast<double>(steps));
}

}  // namespace planted
