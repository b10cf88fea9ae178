// What changes bring, as reports say it.
#include <gtest/gtest.h>

#include "analyze/analysis.h"
#include "derive_trace_builder.h"
#include "replay/what_if.h"

namespace llmprof {
namespace {

// Steps of 40 launches, 10 us from one to the next.
Report with_what_if(int64_t kernel_ns, std::string_view id) {
  constexpr int kRepeated = 8, kLaunches = 40;
  TestTrace b;
  int64_t host = 0, gpu = -1'000'000;
  for (int s = 0; s < kRepeated; ++s) {
    const int64_t begin = host;
    for (int i = 0; i < kLaunches; ++i) {
      gpu = std::max(host + 4'000, gpu + 1'000);
      b.launch("gemm", host, gpu, kernel_ns);
      gpu += kernel_ns;
      host += 10'000;
    }
    const int64_t returned = std::max(host, gpu) + 3'000;
    b.api("cudaStreamSynchronize", host, returned - host);
    b.annotation("decode", begin, returned - begin);
    host = returned + 20'000;
  }
  AnalyzeOptions options;
  options.what_ifs = {{Change{replay::find_what_if(id)}}};
  Result<Report> report = analyze(b.derive_all(), options);
  EXPECT_TRUE(report);
  return report ? *std::move(report) : Report();
}

TEST(WhatIfs, TwiceTheSequencesAreTwiceTheTokens) {
  const Report host = with_what_if(2'000, "batch-doubled");
  ASSERT_EQ(host.what_ifs.size(), 1U);
  ASSERT_TRUE(host.what_ifs[0].tokens_factor);
  EXPECT_NEAR(*host.what_ifs[0].tokens_factor, 2, 0.01) << "the GPU had time left";
  EXPECT_NEAR(*host.what_ifs[0].gain_frac, 0, 0.005);
  const Report gpu = with_what_if(60'000, "batch-doubled");
  ASSERT_EQ(gpu.what_ifs.size(), 1U);
  const WhatIfRecord& row = gpu.what_ifs[0];
  const double now = 20'000 + 4'000 + 40 * 61'000 - 1'000 + 3'000, then = now + 40 * 60'000;
  EXPECT_NEAR(row.then_ms, then / 1e6, 0.01 * then / 1e6);
  EXPECT_NEAR(*row.tokens_factor, 2 * now / then, 0.01);
  EXPECT_LT(row.gain_ms, 0) << "a step takes longer";
  EXPECT_EQ(row.forbidden, "");
}

// Launches cost 2 us more while they are recorded, as was measured on the machine, and the code between them takes
// twice as long, which nothing measured says. Then CUPTI leaves, and steps go on without both: changes are simulated on
// steps as long as these.
TEST(WhatIfs, StartFromStepsOfTheUnrecordedLength) {
  constexpr int kRecordedSteps = 12, kAloneSteps = 12, kLaunches = 40;
  constexpr int64_t kCallNs = 4'000, kCostNs = 2'000, kCodeNs = 8'000, kKernelNs = 2'000;
  TestTrace b;
  int64_t host = kMs, left = 0;
  for (int s = 0; s < kRecordedSteps + kAloneSteps; ++s) {
    const bool recorded = s < kRecordedSteps;
    if (s == kRecordedSteps) left = host - 10'000;
    const int64_t begin = host;
    int64_t gpu = 0;
    for (int i = 0; i < kLaunches; ++i) {
      const int64_t call_ns = recorded ? kCallNs + kCostNs : kCallNs;
      gpu = std::max(host + call_ns + 3'000, gpu + 1'000);
      if (recorded) b.gpu("gemm", gpu, kKernelNs, b.api("cudaLaunchKernel", host, call_ns));
      gpu += kKernelNs;
      host += call_ns + (recorded ? 2 * kCodeNs : kCodeNs);
    }
    const int64_t returned = std::max(host, gpu) + 3'000;
    if (recorded) b.api("cudaStreamSynchronize", host, returned - host);
    b.annotation("decode_step", begin, returned - begin, AnnotationKind::kNvtx);
    host = returned + 20'000;
  }
  b.level(0, left, RecordingLevel::kDefault);
  b.level(left, host + kMs, RecordingLevel::kLight, 1, "detached");
  TraceBuilder(b.trace).add<Devices>({.device = 0, .name = b.trace.strings.intern("NVIDIA H100 80GB HBM3")});
  AnalyzeOptions options;
  options.what_ifs = {{Change{replay::find_what_if("fast-host")}}, {Change{replay::find_what_if("no-copies")}}};
  MeasuredCeilings measured;
  measured.device_key = measured.name = "NVIDIA H100 80GB HBM3";
  const double call_ns = kCallNs, cost_ns = kCostNs;
  measured.recorder_ns["launch_512k"] = {call_ns, call_ns + cost_ns, call_ns, 0, 0};
  measured.recorder_ns["graph_32"] = measured.recorder_ns["graph_256"] = {2'000, 3'000, 3'000, 0, 0};
  measured.recorder_ns["gpu_kernel"] = measured.recorder_ns["gpu_node"] = {800, 1'000, 0, 0, 0};
  options.measured = {measured};
  options.measured_given = true;
  const Result<Report> report = analyze(b.derive_all(), options);
  ASSERT_TRUE(report);
  ASSERT_EQ(report->undisturbed.size(), 1U);
  ASSERT_TRUE(report->undisturbed[0].replayed_ms);
  ASSERT_TRUE(report->undisturbed[0].unrecorded_ms) << report->undisturbed[0].recorded_steps;
  EXPECT_GT(*report->undisturbed[0].replayed_ms, 1.1 * *report->undisturbed[0].unrecorded_ms) << "not explained";
  ASSERT_EQ(report->what_ifs.size(), 2U);
  for (const WhatIfRecord& row : report->what_ifs)
    EXPECT_NEAR(row.step_ms / *report->undisturbed[0].unrecorded_ms, 1, 0.01) << row.what_if;
}

TEST(WhatIfs, OtherChangesMakeNoMoreTokens) {
  const Report report = with_what_if(60'000, "fast-host");
  ASSERT_EQ(report.what_ifs.size(), 1U);
  EXPECT_FALSE(report.what_ifs[0].tokens_factor);
}

TEST(WhatIfs, AClockThatIsNotKnownChangesNothing) {
  const Report report = with_what_if(60'000, "clock");
  ASSERT_EQ(report.what_ifs.size(), 1U);
  EXPECT_DOUBLE_EQ(report.what_ifs[0].gain_ms, 0);
  EXPECT_NE(report.what_ifs[0].forbidden, "");
}

// Python code of 2 ms before the launches of a step of 1 ms: it may go, or run beside the step in another thread.
TEST(WhatIfs, TheIntervalOfCodeThatGoesReachesToCodeThatMoves) {
  TestTrace b;
  constexpr int64_t kCodeNs = 2 * 1'000'000, kKernelNs = 24'000;
  int64_t host = 0;
  for (int s = 0; s < 10; ++s) {
    const int64_t begin = host;
    host += kCodeNs;
    int64_t gpu = host + 4'000;
    for (int i = 0; i < 40; ++i) {
      gpu = std::max(gpu + 1'000, host + 4'000);
      b.launch("gemm", host, gpu, kKernelNs);
      gpu += kKernelNs;
      host += 10'000;
    }
    const int64_t returned = gpu + 3'000;
    b.api("cudaStreamSynchronize", host, returned - host);
    b.annotation("decode", begin, returned - begin);
    host = returned;
  }
  b.level(-1'000'000, host + 1'000'000, RecordingLevel::kDefault, 0);
  const Result<Report> report = analyze(b.derive_all());
  ASSERT_TRUE(report);
  const auto mended = std::find_if(report->findings.begin(), report->findings.end(), [](const Finding& one) {
    return one.stage == "decode" && (one.id == "cpu-bound-gap" || one.id == "host-preprocessing");
  });
  ASSERT_NE(mended, report->findings.end());
  ASSERT_TRUE(mended->gain && mended->gain->ci95);
  EXPECT_EQ(mended->gain->method, "replay");
  EXPECT_NEAR(mended->gain->to, 1.01, 0.05) << "the code is gone";
  EXPECT_NEAR((*mended->gain->ci95)[1], 2.0, 0.05) << "the code is what takes longest";
}

}  // namespace
}  // namespace llmprof
