// Planted: 200 kernels a step, each shorter than its launch. Healthy: the same kernels as one CUDA graph.
#include "planted.h"

int main(int argc, char** argv) {
  const planted::Options options = planted::parse(argc, argv);
  constexpr int kKernels = 200;
  float* data = nullptr;
  CHECK_CUDA(cudaMalloc(&data, 4096 * sizeof(float)));
  CHECK_CUDA(cudaMemset(data, 0, 4096 * sizeof(float)));
  cudaStream_t stream;
  CHECK_CUDA(cudaStreamCreate(&stream));
  const auto launch_all = [&] {
    for (int i = 0; i < kKernels; ++i) planted::pass_over<<<16, 256, 0, stream>>>(data, 4096);
  };
  cudaGraph_t graph;
  cudaGraphExec_t replay;
  CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  launch_all();
  CHECK_CUDA(cudaStreamEndCapture(stream, &graph));
  CHECK_CUDA(cudaGraphInstantiate(&replay, graph, 0));
  int since_wait = 0;
  planted::repeat(options, [&] {
    if (options.healthy) {
      CHECK_CUDA(cudaGraphLaunch(replay, stream));
    } else {
      launch_all();
    }
    // Rarely, so that waiting is no second cause, and often enough that no queue builds up.
    if (++since_wait % 32 == 0) CHECK_CUDA(cudaStreamSynchronize(stream));
  });
  return 0;
}
