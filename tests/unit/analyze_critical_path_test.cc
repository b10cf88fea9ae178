// What the critical path of steps consists of, against programs in which it is known.
#include <gtest/gtest.h>

#include <map>

#include "analyze/analysis.h"
#include "derive_trace_builder.h"

namespace llmprof {
namespace {

struct OnPath {
  std::string_view name;
  Category category;
  int64_t ns;  // of the first step; others take up to 2 ns more
};
constexpr OnPath kOnPath[] = {{"gemm", Category::kGemm, 30'000},
                              {"softmax_warp_forward", Category::kSoftmax, 20'000},
                              {"flash_fwd_kernel", Category::kAttention, 40'000},
                              {"ncclDevKernel_AllReduce_Sum_bf16_RING_LL", Category::kCommunication, 15'000},
                              {"Memcpy DtoD (Device -> Device)", Category::kCopy, 11'000},
                              {"gemm", Category::kGemm, 30'001}};
constexpr int kSteps = 7;

// The GPU is always behind: all that it does is on the path.
TestTrace behind() {
  TestTrace b;
  int64_t host = 0, gpu = -1'000'000;
  for (int s = 0; s < kSteps; ++s) {
    const int64_t begin = host;
    for (const OnPath& one : kOnPath) {
      gpu = std::max(host + 4'000, gpu + 1'000);
      b.gpu(one.name, gpu, one.ns + s % 3, b.api("cudaLaunchKernel", host, 3'000));
      gpu += one.ns + s % 3;
      host += 4'000;
    }
    b.api("cudaStreamSynchronize", host, gpu + 3'000 - host);
    b.annotation("decode", begin, gpu + 3'000 - begin);
    host = gpu + 23'000;
  }
  return b;
}

TEST(CriticalPath, ItsWorkByCategoryAddsUp) {
  TestTrace b = behind();
  Trace& trace = b.derive_all();
  for (Row op = 0; op < trace.gpu_ops.size(); ++op)
    trace.gpu_links.category[op] = kOnPath[op % std::size(kOnPath)].category;
  const Result<Report> report = analyze(trace);
  ASSERT_TRUE(report);
  ASSERT_EQ(report->critical_path.size(), 1U);
  const CriticalPathRecord& path = report->critical_path[0];
  EXPECT_EQ(path.steps, kSteps);
  std::map<std::string_view, int64_t> expected_ns;  // of all steps
  for (const OnPath& one : kOnPath)
    expected_ns[category_name(one.category)] += kSteps * one.ns + 0 + 1 + 2 + 0 + 1 + 2 + 0;
  ASSERT_EQ(report->critical_path_work.size(), expected_ns.size());
  int64_t sum_ns = 0, before_ns = INT64_MAX;
  for (const CriticalPathWorkRecord& row : report->critical_path_work) {
    EXPECT_EQ(row.stage, path.stage);
    EXPECT_NEAR(static_cast<double>(row.ms.ns), static_cast<double>(expected_ns[row.category]) / kSteps, 1)
        << row.category;
    EXPECT_DOUBLE_EQ(row.share, static_cast<double>(row.ms.ns) / static_cast<double>(path.step_ms.ns));
    EXPECT_LE(row.ms.ns, before_ns) << "the most first";
    before_ns = row.ms.ns;
    sum_ns += row.ms.ns;
  }
  EXPECT_EQ(sum_ns, path.gpu_work_ms.ns) << "to the nanosecond";
}

// Where the host is the path, what the GPU does beside it is on none.
TEST(CriticalPath, HiddenWorkIsInNoCategory) {
  TestTrace b;
  int64_t host = 0;
  for (int s = 0; s < kSteps; ++s) {
    const int64_t begin = host;
    for (int i = 0; i < 40; ++i) {
      b.launch("gemm", host, host + 4'000, 2'000);
      host += 10'000;
    }
    b.api("cudaStreamSynchronize", host, 3'000);
    b.annotation("decode", begin, host + 3'000 - begin);
    host += 23'000;
  }
  const Result<Report> report = analyze(b.derive_all());
  ASSERT_TRUE(report);
  ASSERT_EQ(report->critical_path.size(), 1U);
  EXPECT_EQ(report->critical_path[0].gpu_work_ms.ns, 0);
  EXPECT_TRUE(report->critical_path_work.empty());
}

}  // namespace
}  // namespace llmprof
