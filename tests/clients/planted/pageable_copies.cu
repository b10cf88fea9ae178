// Planted: 32 MiB of inputs a step from memory of malloc. Healthy: from pinned memory, on a stream of its own.
// The copies stay under a fifth of the step on purpose: above that the finding is copy-bound, whatever the memory.
#include "planted.h"

int main(int argc, char** argv) {
  const planted::Options options = planted::parse(argc, argv);
  constexpr size_t kInputBytes = size_t{32} << 20, kBallast = size_t{256} << 20;  // 1 GiB of floats
  float *ballast = nullptr, *inputs = nullptr;
  CHECK_CUDA(cudaMalloc(&ballast, kBallast * sizeof(float)));
  CHECK_CUDA(cudaMemset(ballast, 0, kBallast * sizeof(float)));
  CHECK_CUDA(cudaMalloc(&inputs, kInputBytes));
  void* host = nullptr;
  if (options.healthy) {
    CHECK_CUDA(cudaMallocHost(&host, kInputBytes));
  } else {
    host = std::malloc(kInputBytes);
  }
  if (host == nullptr) return 1;
  std::memset(host, 1, kInputBytes);
  cudaStream_t copies, work;
  CHECK_CUDA(cudaStreamCreate(&copies));
  CHECK_CUDA(cudaStreamCreate(&work));
  planted::repeat(options, [&] {
    CHECK_CUDA(cudaMemcpyAsync(inputs, host, kInputBytes, cudaMemcpyHostToDevice, options.healthy ? copies : work));
    for (int i = 0; i < 80; ++i) planted::launch_pass(ballast, kBallast, work);
    CHECK_CUDA(cudaStreamSynchronize(work));
    CHECK_CUDA(cudaStreamSynchronize(copies));
  });
  return 0;
}
