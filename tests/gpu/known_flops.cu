// Kernels whose arithmetic is known to the instruction, for flops_test.py. Says how many FLOP a step does.
#include <cuda_fp16.h>

#include "../clients/planted/planted.h"

namespace {

constexpr int kBlocks = 1056, kThreads = 256;
constexpr int kChains = 8, kUnrolled = 256;  // independent multiply-adds a round; rounds without a loop in between

__global__ void single_precision(float* out, int rounds, float a, float b) {
  float sums[kChains];
  for (int i = 0; i < kChains; ++i) sums[i] = static_cast<float>(threadIdx.x + i);
  for (int round = 0; round < rounds; ++round) {
#pragma unroll
    for (int k = 0; k < kUnrolled / kChains; ++k)
#pragma unroll
      for (int i = 0; i < kChains; ++i) sums[i] = fmaf(sums[i], a, b);
  }
  float sum = 0;
  for (int i = 0; i < kChains; ++i) sum += sums[i];
  if (sum == 12345.0f) *out = sum;  // never, but the compiler cannot know
}

__global__ void packed_halves(float* out, int rounds, float a, float b) {
  const __half2 factor = __float2half2_rn(a), term = __float2half2_rn(b);
  __half2 sums[kChains];
  for (int i = 0; i < kChains; ++i) sums[i] = __float2half2_rn(static_cast<float>(threadIdx.x + i));
  for (int round = 0; round < rounds; ++round) {
#pragma unroll
    for (int k = 0; k < kUnrolled / kChains; ++k)
#pragma unroll
      for (int i = 0; i < kChains; ++i) sums[i] = __hfma2(sums[i], factor, term);
  }
  float sum = 0;
  for (int i = 0; i < kChains; ++i) sum += __low2float(sums[i]) + __high2float(sums[i]);
  if (sum == 12345.0f) *out = sum;
}

// mma.sync of 16x8x16 in BF16: 4,096 FLOP a warp and instruction.
__global__ void tensor_products(float* out, int rounds, float a, float) {
  const unsigned x = __float_as_uint(a);
  float sums[kChains][4] = {};
  for (int round = 0; round < rounds; ++round) {
#pragma unroll
    for (int k = 0; k < kUnrolled / kChains; ++k)
#pragma unroll
      for (int i = 0; i < kChains; ++i)
        asm volatile(
            "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%4,%4,%4}, {%4,%4}, {%0,%1,%2,%3};"
            : "+f"(sums[i][0]), "+f"(sums[i][1]), "+f"(sums[i][2]), "+f"(sums[i][3])
            : "r"(x));
  }
  float sum = 0;
  for (int i = 0; i < kChains; ++i) sum += sums[i][0] + sums[i][1] + sums[i][2] + sums[i][3];
  if (sum == 12345.0f) *out = sum;
}

}  // namespace

int main(int argc, char** argv) {
  struct Kind {
    const char* name;
    void (*kernel)(float*, int, float, float);
    double flops_per_thread;  // of one instruction
    int rounds;               // about 10 ms on an H200
  };
  constexpr Kind kKinds[] = {{"single", single_precision, 2, 4096},
                             {"halves", packed_halves, 4, 4096},
                             {"tensor", tensor_products, 4096.0 / 32, 512}};
  const Kind* kind = nullptr;
  for (const Kind& candidate : kKinds)
    if (argc > 1 && std::strcmp(argv[1], candidate.name) == 0) kind = &candidate;
  if (kind == nullptr) {
    std::fprintf(stderr, "usage: %s single|halves|tensor\n", argv[0]);
    return 2;
  }
  float* out = nullptr;
  CHECK_CUDA(cudaMalloc(&out, sizeof(float)));
  std::printf("RESULT {\"flops_per_step\": %.17g}\n",
              kind->flops_per_thread * kUnrolled * kind->rounds * double{kBlocks} * kThreads);
  planted::Options options;
  for (int i = 0; i < 3; ++i) kind->kernel<<<kBlocks, kThreads>>>(out, kind->rounds, 0.5f, 1.0f);
  CHECK_CUDA(cudaDeviceSynchronize());
  const double begin = planted::now_s();
  while (planted::now_s() - begin < options.seconds) {
    nvtxRangePushA("decode_step");
    kind->kernel<<<kBlocks, kThreads>>>(out, kind->rounds, 0.5f, 1.0f);
    CHECK_CUDA(cudaDeviceSynchronize());
    nvtxRangePop();
  }
  return 0;
}
