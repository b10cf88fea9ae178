// Every kernel source is compiled for every generation that matters, where an NVRTC is found: a kernel that does not
// compile is found here, without a GPU.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/parallel.h"
#include "device/cuda/compiler.h"

namespace llmprof::kernels::cuda {
namespace {

// With every set of macros that an operation asks for.
std::vector<device::cuda::KernelSource> every_kernel() {
  std::vector<device::cuda::KernelSource> all = {{"fill.cu", {}}, {"product.cu", {}}, {"timing.cu", {}}};
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

class KernelsCudaKernels : public testing::Test {
 protected:
  void SetUp() override {
    unsetenv(nvidia::kEnvNvrtc);
    Result<nvidia::NvrtcLibrary> opened = nvidia::open_nvrtc(0);
    if (!opened) GTEST_SKIP() << "no NVRTC here, kernels are not compiled: " << opened.error().text();
    nvrtc_ = std::move(*opened);
  }
  nvidia::NvrtcLibrary nvrtc_;
};

// On 9.0 nearly all sets of macros are compiled, on the others one of each kind: what differs between generations is
// which instructions there are, and a quarter of the time is enough for that.
bool compiled_on(int chip, const device::cuda::KernelSource& source) {
  const auto has = [&](const char* define) {
    return std::find(source.defines.begin(), source.defines.end(), define) != source.defines.end();
  };
  if (chip < 89 && has("KIND=Fp8Mma")) return false;  // no such unit
  if (source.name == "registers.cu" && chip != 90 && source.defines[0].compare(0, 6, "GROUP=") == 0) return false;
  if (source.name == "attention.cu")
    return chip == 90 ? !has("T=Fp16") || has("KEYS=32") : !has("T=Fp16") && has("KEYS=32");
  if (source.name == "attention_decode.cu") {
    if (has("STAGES=2") && !has("HEAD=256")) return false;
    if (chip == 90) return !has("T=Fp16") || has("PAGED=1");
    return !has("T=Fp16") && has("PAGED=1") && has("ROWS=16");
  }
  if (source.name == "few_rows.cu") return !has("T=Fp16") && (chip == 90 || has("TILES=2"));
  if (chip == 90) return true;
  if (source.name == "rows_exact.cu") return !has("T=Fp16") && (has("ROWS=2") || has("ITEMS=4"));
  for (const char* spared : {"T=Fp16", "ITEMS=1", "ITEMS=2", "ITEMS=8", "UNROLL=2", "UNROLL=4"})
    if (has(spared)) return false;
  return true;
}

TEST_F(KernelsCudaKernels, EverySourceCompilesForEveryGeneration) {
  std::vector<device::cuda::KernelSource> all = every_kernel();
  ASSERT_FALSE(all.empty());
#ifdef LLMPROF_SANITIZED
  // All of our code that takes part runs for any of them; the rest of the minutes would be NVIDIA's compiler alone.
  all.resize(std::min<size_t>(all.size(), 8));
#endif
  struct Job {
    device::cuda::Architecture architecture;
    const device::cuda::KernelSource* source;
    Result<std::string> code;
  };
  std::vector<Job> jobs;
  for (const int chip : {80, 90, 100, 120}) {
    const Result<device::cuda::Architecture> architecture =
        device::cuda::architecture_for(nvrtc_, chip / 10, chip % 10);
    ASSERT_TRUE(architecture) << architecture.error().text();
    for (const device::cuda::KernelSource& source : all)
      if (compiled_on(chip, source)) jobs.push_back({*architecture, &source, {}});
  }
  // Side by side, as Context::compile_ahead has them compiled.
  parallel_for(jobs.size(), [&](size_t i) {
    jobs[i].code = device::cuda::compile_kernel(nvrtc_, jobs[i].architecture, *jobs[i].source);
  });
  for (const Job& job : jobs) {
    EXPECT_TRUE(job.code) << job.source->name << ": " << job.code.error().text();
    if (job.code) {
      EXPECT_GT(job.code->size(), 64U) << job.source->name;
    }
  }
  RecordProperty("compiled", static_cast<int>(jobs.size()));
}

TEST_F(KernelsCudaKernels, EverySourceIsListed) {
  for (const std::string& name : device::cuda::kernel_source_names()) {
    bool listed = false;
    for (const device::cuda::KernelSource& source : every_kernel()) listed = listed || source.name == name;
    EXPECT_TRUE(listed) << name << " has no row in every_kernel()";
  }
}

TEST_F(KernelsCudaKernels, ABrokenKernelNamesItsError) {
  const Result<std::string> code = device::cuda::compile_kernel(nvrtc_, {"sm_90a", true}, {"memory.cu", {"UNROLL=-)"}});
  ASSERT_FALSE(code);
  EXPECT_NE(code.error().what.find("memory.cu"), std::string::npos);
  EXPECT_NE(code.error().what.find("error"), std::string::npos);
}

TEST_F(KernelsCudaKernels, TheCacheIsUsedAndDamageIsNot) {
  const std::string folder = testing::TempDir() + "llmprof-kernel-cache";
  std::filesystem::remove_all(folder);
  setenv("XDG_CACHE_HOME", folder.c_str(), 1);
  const device::cuda::KernelSource source{"timing.cu", {}};
  const device::cuda::Architecture architecture{"sm_90a", true};
  const Result<std::string> first = device::cuda::compile_kernel_cached(nvrtc_, architecture, source);
  ASSERT_TRUE(first);
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(device::cuda::kernel_cache_folder()))
    files.push_back(entry.path());
  ASSERT_EQ(files.size(), 1U) << "and no temporary file";
  // Marked, so that reading it is told from compiling again.
  { std::ofstream(files[0], std::ios::binary | std::ios::app) << "mark"; }
  const Result<std::string> second = device::cuda::compile_kernel_cached(nvrtc_, architecture, source);
  ASSERT_TRUE(second);
  EXPECT_EQ(*second, *first + "mark");
  { std::ofstream(files[0], std::ios::binary | std::ios::trunc) << "cut"; }
  const Result<std::string> third = device::cuda::compile_kernel_cached(nvrtc_, architecture, source);
  ASSERT_TRUE(third);
  EXPECT_EQ(*third, *first);
  unsetenv("XDG_CACHE_HOME");
  std::filesystem::remove_all(folder);
}

TEST(KernelsCudaArchitecture, FollowsTheChipAndTheCompiler) {
  nvidia::NvrtcLibrary nvrtc;
  nvrtc.major = 13;
  nvrtc.archs = {75, 80, 86, 89, 90, 100, 120};
  EXPECT_EQ(device::cuda::architecture_for(nvrtc, 8, 0)->option, "sm_80");
  EXPECT_EQ(device::cuda::architecture_for(nvrtc, 9, 0)->option, "sm_90a");
  EXPECT_EQ(device::cuda::architecture_for(nvrtc, 10, 0)->option, "sm_100a");
  const Result<device::cuda::Architecture> newer = device::cuda::architecture_for(nvrtc, 13, 0);
  ASSERT_TRUE(newer);
  EXPECT_EQ(newer->option, "compute_120");
  EXPECT_FALSE(newer->cubin);
  EXPECT_FALSE(device::cuda::architecture_for(nvrtc, 7, 5)) << "too old for our kernels";
  nvrtc.archs = {100, 120};
  EXPECT_FALSE(device::cuda::architecture_for(nvrtc, 9, 0)) << "too old for the compiler";
}

}  // namespace
}  // namespace llmprof::kernels::cuda
