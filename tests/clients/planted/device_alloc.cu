// Planted: every step allocates its buffers with cudaMalloc and gives them back with cudaFree. Healthy: it keeps them.
#include "planted.h"

int main(int argc, char** argv) {
  const planted::Options options = planted::parse(argc, argv);
  constexpr int kBuffers = 8;
  constexpr size_t kFloats = size_t{16} << 20;  // 64 MiB each
  float* buffers[kBuffers] = {};
  const auto take = [&] {
    for (float*& buffer : buffers) CHECK_CUDA(cudaMalloc(&buffer, kFloats * sizeof(float)));
  };
  if (options.healthy) take();
  planted::repeat(options, [&] {
    if (!options.healthy) take();
    for (float* buffer : buffers) planted::launch_pass(buffer, kFloats);
    CHECK_CUDA(cudaDeviceSynchronize());
    if (options.healthy) return;
    for (float* buffer : buffers) CHECK_CUDA(cudaFree(buffer));
  });
  return 0;
}
