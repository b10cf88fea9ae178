// Planted: a kernel with one thread block per sequence and head, 16 in all, on a GPU of 132 SMs. Healthy: the same
// work split over 1056 blocks.
#include "planted.h"

int main(int argc, char** argv) {
  const planted::Options options = planted::parse(argc, argv);
  constexpr size_t kFloats = size_t{4} << 20;
  float* data = nullptr;
  CHECK_CUDA(cudaMalloc(&data, kFloats * sizeof(float)));
  CHECK_CUDA(cudaMemset(data, 0, kFloats * sizeof(float)));
  const int blocks = options.healthy ? 1056 : 16;
  planted::repeat(options, [&] {
    for (int layer = 0; layer < 64; ++layer) planted::pass_over<<<blocks, 256>>>(data, kFloats);
    CHECK_CUDA(cudaDeviceSynchronize());
  });
  return 0;
}
