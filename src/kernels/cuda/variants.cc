#include "kernels/cuda/variants.h"

#include <fmt/format.h>

namespace llmprof::device::cuda {

std::vector<KernelSource> every_kernel() {
  std::vector<KernelSource> all = {{"fill.cu", {}}, {"product.cu", {}}, {"timing.cu", {}}};
  for (const int unroll : {2, 4, 8}) all.push_back({"memory.cu", {fmt::format("UNROLL={}", unroll)}});
  for (const char* type : {"T=Bf16", "T=Fp16", "T=Fp32"}) {
    all.push_back({"elementwise.cu", {type}});
    all.push_back({"sampling.cu", {type}});
    for (const int each : {1, 2, 4, 8, 16, 32})
      all.push_back({"routing.cu", {type, fmt::format("LANES_EACH={}", each)}});
    for (const int items : {1, 2, 4, 8}) all.push_back({"rows.cu", {type, fmt::format("ITEMS={}", items)}});
  }
  struct Exact {
    int items, threads, rows, shared, blocks;
  };
  // Of rows of 8192, where registers are scarcest, and of some with a number of warps that is no power of two.
  for (const char* type : {"T=Bf16", "T=Fp16"}) {
    for (const Exact& shape : {Exact{8, 128, 1, 0, 5}, Exact{8, 128, 1, 0, 7}, Exact{8, 128, 1, 1, 5},
                               Exact{8, 128, 2, 0, 4}, Exact{4, 256, 1, 0, 4}, Exact{2, 224, 1, 0, 5}})
      all.push_back({"rows_exact.cu",
                     {type, fmt::format("ITEMS={}", shape.items), fmt::format("THREADS={}", shape.threads),
                      fmt::format("ROWS={}", shape.rows), fmt::format("SHARED={}", shape.shared),
                      fmt::format("MIN_BLOCKS={}", shape.blocks)}});
  }
  for (const char* type : {"T=Bf16", "T=Fp16"}) {
    for (const int head : {64, 128, 256}) {
      for (const int rows : {8, 16}) {
        for (const int stages : {1, 2, 3}) {
          if (head == 256 && stages == 1) continue;  // more registers than there are
          for (const int paged : {0, 1})
            all.push_back({"attention_decode.cu",
                           {type, fmt::format("HEAD={}", head), fmt::format("ROWS={}", rows),
                            fmt::format("STAGES={}", stages), fmt::format("PAGED={}", paged)}});
        }
      }
    }
  }
  for (const char* type : {"T=Bf16", "T=Fp32"}) {
    all.push_back({"workload.cu", {type}});
    for (const int head : {16, 32, 64, 128})
      all.push_back({"workload_attention.cu", {type, fmt::format("HEAD={}", head)}});
  }
  struct FewRows {
    int groups, tiles, ahead;
  };
  for (const char* type : {"T=Bf16", "T=Fp16"}) {
    for (const FewRows& shape :
         {FewRows{1, 1, 8}, FewRows{1, 1, 4}, FewRows{1, 2, 4}, FewRows{2, 1, 6}, FewRows{2, 1, 4}, FewRows{2, 2, 3}})
      all.push_back({"few_rows.cu",
                     {type, fmt::format("GROUPS={}", shape.groups), fmt::format("TILES={}", shape.tiles),
                      fmt::format("AHEAD={}", shape.ahead)}});
  }
  struct Prompt {
    int head, rows, keys, warps;
  };
  for (const char* type : {"T=Bf16", "T=Fp16"}) {
    for (const Prompt& shape :
         {Prompt{64, 32, 64, 4}, Prompt{64, 16, 64, 8}, Prompt{128, 32, 64, 4}, Prompt{128, 32, 32, 4},
          Prompt{128, 16, 64, 8}, Prompt{256, 16, 32, 4}, Prompt{256, 16, 64, 8}})
      all.push_back({"attention.cu",
                     {type, fmt::format("HEAD={}", shape.head), fmt::format("ROWS={}", shape.rows),
                      fmt::format("KEYS={}", shape.keys), fmt::format("WARPS={}", shape.warps)}});
  }
  for (const char* kind : {"Fp64Mma", "Fp32Fma", "Tf32Mma", "Fp16Mma", "Bf16Mma", "Fp8Mma", "Int8Mma"})
    all.push_back({"registers.cu", {std::string("KIND=") + kind}});
  // Of 9.0 alone.
  for (const char* group : {"Tf32Group", "Fp16Group", "Bf16Group", "Fp8Group", "Int8Group"})
    all.push_back({"registers.cu", {std::string("GROUP=") + group}});
  return all;
}

}  // namespace llmprof::device::cuda
