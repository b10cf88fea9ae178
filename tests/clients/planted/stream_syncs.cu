// Planted: the host waits for the default stream after every layer, asleep until the interrupt (blocking
// synchronisation, as programs choose it to leave the CPU to others). Healthy: it waits once in sixteen steps.
#include "planted.h"

int main(int argc, char** argv) {
  const planted::Options options = planted::parse(argc, argv);
  CHECK_CUDA(cudaSetDeviceFlags(cudaDeviceScheduleBlockingSync));
  constexpr int kLayers = 64;
  constexpr size_t kFloats = size_t{24} << 20;  // 96 MiB, about 45 us a layer
  float* data = nullptr;
  CHECK_CUDA(cudaMalloc(&data, kFloats * sizeof(float)));
  CHECK_CUDA(cudaMemset(data, 0, kFloats * sizeof(float)));
  int steps = 0;
  planted::repeat(options, [&] {
    for (int layer = 0; layer < kLayers; ++layer) {
      planted::launch_pass(data, kFloats);
      if (!options.healthy) CHECK_CUDA(cudaStreamSynchronize(nullptr));
    }
    if (!options.healthy || ++steps % 16 == 0) CHECK_CUDA(cudaStreamSynchronize(nullptr));
  });
  return 0;
}
