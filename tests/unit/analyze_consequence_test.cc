// What a finding means for TTFT and TPOT: its severity, its order, and where its bound starts.
#include <gtest/gtest.h>

#include <algorithm>

#include "analyze/finding.h"
#include "analyze_recording.h"

namespace llmprof {
namespace {

Report sound_report_of(const AnalyzedRecording& run) {
  Report report = report_of(run);
  for (const ConservationCheck& check : report.conservation) EXPECT_TRUE(check.ok) << check.name;
  return report;
}

// Steps one after the other; of each a part is idle, in `launches` equal gaps, and the rest busy.
class Timeline {
 public:
  AnalyzedRecording run;
  int64_t at = 0;

  Row step(StageKind kind, int64_t ns, int64_t idle_ns, int launches, std::string_view name = {}, int64_t tokens = 1,
           IdleCause cause = IdleCause::kOperatorDispatch) {
    const Row row = run.step(kind, at, at + ns, tokens, 100, name);
    for (int k = 0; k < launches; ++k) {
      const int64_t begin = at + k * (ns / launches), idle = idle_ns / launches, busy = ns / launches - idle;
      if (idle > 0) run.gap(cause, begin, idle, row);
      if (busy == 0) continue;
      run.gpu("gemm", Category::kGemm, begin + idle, busy, {row, kNoRow, run.api("cudaLaunchKernel", begin, 100)});
      run.busy(begin + idle, begin + idle + busy);
    }
    at += ns;
    return row;
  }
  void pause(int64_t ns) {
    run.gap(IdleCause::kNoWork, at, ns, kNoRow);
    at += ns;
  }
  Report report() {
    run.window(0, at);
    find_steady(run.trace);
    return sound_report_of(run);
  }
};

TEST(Consequence, SeverityIsAShareOfWhatIsWaitedForHoweverLongTheStartWas) {
  Timeline t;
  t.pause(10'000 * kMs);
  t.step(StageKind::kPrefill, 40 * kMs, 0, 4, {}, 512);
  for (int s = 0; s < 50; ++s) t.step(StageKind::kDecode, 10 * kMs, 4'200'000, 100);
  const Report report = t.report();
  const Finding* finding = finding_of(report, "launch-bound", "decode");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->severity, FindingSeverity::kCritical) << "42 % of TPOT, 2 % of the recording";
  EXPECT_EQ(finding->bound->metric, GainMetric::kTpot);
  EXPECT_DOUBLE_EQ(finding->bound->from, 10);
  EXPECT_DOUBLE_EQ(finding->bound->to, 5.8);
}

TEST(Consequence, BoundsStartFromTheHeadline) {
  Timeline t;
  for (int r = 0; r < 4; ++r) {
    t.step(StageKind::kPrefill, (r == 0 ? 300 : 30) * kMs, (r == 0 ? 290 : 20) * kMs, 400, {}, 512);
    for (int s = 0; s < 5; ++s) t.step(StageKind::kDecode, (r == 0 ? 50 : 5) * kMs, (r == 0 ? 48 : 3) * kMs, 100);
  }
  const Report report = t.report();
  const Headline& headline = report.latency->headline;
  EXPECT_DOUBLE_EQ(*headline.tpot_ms, 5);
  size_t stages = 0;
  for (const Finding& finding : report.findings) {
    if (!finding.bound || finding.stage == "all") continue;
    ++stages;
    EXPECT_EQ(finding.bound->from, finding.stage == "decode" ? *headline.tpot_ms : *headline.ttft_ms) << finding.id;
  }
  EXPECT_GE(stages, 2U);
  // Not of the steps of warm-up, which wait 48 of 50 ms.
  const Finding* decode = finding_of(report, "launch-bound", "decode");
  ASSERT_NE(decode, nullptr);
  EXPECT_NEAR(decode->bound->to, 2, 1e-9);
  const Finding* prefill = finding_of(report, "launch-bound", "prefill");
  ASSERT_NE(prefill, nullptr);
  EXPECT_NEAR(prefill->bound->to, 10, 1e-9);
  EXPECT_NEAR(*report.latency->warmup_ms, 270 + 5 * 45, 1e-9) << "the first prompt is part of it";
  // They are stages of their own, so that no share or mean of the others holds them.
  const auto rows_of = [&](std::string_view name) {
    const StageTiming* row = stage_of(report, name);
    return row != nullptr ? row->count : 0;
  };
  EXPECT_EQ(rows_of("decode"), 15);
  EXPECT_EQ(rows_of("decode [warm-up]"), 5);
  EXPECT_EQ(rows_of("prefill"), 3);
  EXPECT_EQ(rows_of("prefill [warm-up]"), 1);
  EXPECT_DOUBLE_EQ(*stage_of(report, "decode")->gpu_busy_frac, decode->evidence[0].value.value());
  EXPECT_EQ(stage_of(report, "decode [warm-up]")->wall_ms.ns, 250 * kMs);
  for (const Finding& finding : report.findings) EXPECT_EQ(finding.stage.find("[warm-up]"), std::string::npos);
  for (const ConservationCheck& check : report.conservation) EXPECT_TRUE(check.ok) << check.name;
}

// Every step holds 3 ms of GPU work, and every fourth waits 27 ms instead of 7: without the waiting none takes less
// than 3.
TEST(Consequence, WhatTheGpuDoesStaysInTheBoundOfWaiting) {
  Timeline t;
  for (int s = 0; s < 9; ++s)
    t.step(StageKind::kDecode, (s % 4 == 3 ? 30 : 10) * kMs, (s % 4 == 3 ? 27 : 7) * kMs, 400);
  const Report report = t.report();
  const Finding* decode = finding_of(report, "launch-bound", "decode");
  ASSERT_NE(decode, nullptr);
  EXPECT_DOUBLE_EQ(decode->bound->from, 10);
  EXPECT_NEAR(decode->bound->to, 3, 1e-9);
}

// One pause of 200 ms in one of four steps: taken out, the median step is as it was.
TEST(Consequence, AGapInOneStepIsNoGainOfTheTypicalOne) {
  Timeline t;
  for (int s = 0; s < 4; ++s) {
    const Row row = t.step(StageKind::kDecode, 10 * kMs, 0, 10);
    if (s != 2) continue;
    t.run.trace.steps.end_ns[row] += 200 * kMs;
    t.run.gap(IdleCause::kHostWork, t.at, 200 * kMs, row);
    t.at += 200 * kMs;
  }
  const Report report = t.report();
  const Finding* finding = finding_of(report, "cpu-bound-gap", "decode");
  ASSERT_NE(finding, nullptr);
  EXPECT_FALSE(finding->bound);
  EXPECT_EQ(finding->evidence.back().metric, "steps that it falls into, no typical one among them");
  EXPECT_DOUBLE_EQ(*finding->evidence.back().value, 0.25);
}

// While the GPU waits for launches, less work on it gains nothing; fewer kernels are fewer launches.
TEST(Consequence, LessWorkIsNoGainWhereTheHostIsLate) {
  for (const bool late : {true, false}) {
    AnalyzedRecording run;
    const int64_t gap = late ? 30'000 : 1'000;
    int64_t at = 0;
    const Row gemm = run.gemm(DType::kBf16, 1, 4096, 16384);
    for (int s = 0; s < 4; ++s) {
      const Row step = run.step(StageKind::kDecode, at, at, 1, 100 + s);
      for (int k = 0; k < 40; ++k) {
        const bool product = k % 4 == 0;
        const int64_t busy = product ? 30'000 : 2'000;
        const Row before = run.gap(IdleCause::kOperatorDispatch, at, gap, step, run.op("aten::op", at, 1000));
        at += gap;
        run.trace.gaps.next_gpu_op[before] =
            run.gpu(product ? "gemm" : "norm", product ? Category::kGemm : Category::kNorm, at, busy,
                    {.step = step, .api = run.api("cudaLaunchKernel", at - gap, 500), .work = product ? gemm : kNoRow});
        run.busy(at, at + busy);
        at += busy;
      }
      run.trace.steps.end_ns[step] = at;
    }
    run.window(0, at);
    const Report report = sound_report_of(run);
    const Finding* weights = finding_of(report, "memory-bound-weights", "decode");
    ASSERT_NE(weights, nullptr);
    EXPECT_EQ(weights->bound.has_value(), !late);
    EXPECT_EQ(weights->advice.back().starts_with("First let the host keep up"), late);
    const Finding* small = finding_of(report, "small-kernels-unfused", "decode");
    ASSERT_NE(small, nullptr);
    // 20 of 30 short kernels go, of 2 us each, and where launching is what takes time so does that of 20 of 40
    // launches.
    const double step_ms = (10 * 30 + 30 * 2 + 40 * (late ? 30 : 1)) / 1e3;
    EXPECT_NEAR(small->bound->from - small->bound->to, late ? 20 * 0.002 + step_ms - 0.36 - 20 * 0.03 : 20 * 0.002,
                2e-3);
    EXPECT_EQ(small->severity, late ? FindingSeverity::kCritical : FindingSeverity::kMajor) << "41 % and 10 % of TPOT";
  }
}

// The start is most of the run: that is said first, in words that hold on a CPU.
TEST(Consequence, FirstCallsAreFoundOnACpuToo) {
  for (const bool cpu : {false, true}) {
    AnalyzedRecording run;
    if (cpu) run.trace.devices.kind[0] = ProcessorKind::kCpu;
    int64_t at = 0;
    const auto step = [&](StageKind kind, int64_t ms, int64_t tokens, WorkId work) {
      const Row row = run.step(kind, at, at + ms * kMs, tokens, 100, name_of(kind));
      run.gpu("gemm", Category::kGemm, at, ms * kMs, {.step = row, .work = work});
      run.busy(at, at + ms * kMs);
      at += ms * kMs;
    };
    const WorkId wide = run.gemm(DType::kBf16, 512, 4096, 4096), narrow = run.gemm(DType::kBf16, 1, 4096, 4096);
    step(StageKind::kPrefill, 50, 512, wide);
    for (int s = 0; s < 16; ++s) step(StageKind::kDecode, s < 5 ? 300 : 10, 1, narrow);
    run.window(0, at);
    find_steady(run.trace);
    const Report report = report_of(run);
    const Finding* first = finding_of(report, "first-call-cost");
    ASSERT_NE(first, nullptr) << cpu;
    EXPECT_EQ(first->severity, FindingSeverity::kMinor);
    EXPECT_EQ(report.findings.front().id, "first-call-cost");
    for (const std::string& advice : first->advice)
      EXPECT_TRUE(!cpu || (advice.find("GPU") == std::string::npos && advice.find("loaded") == std::string::npos));
  }
}

TEST(Consequence, AStageCountsByItsPartOfARequest) {
  for (const int64_t prompt_ms : {4, 400}) {
    Timeline t;
    t.step(StageKind::kPrefill, prompt_ms * kMs, prompt_ms * kMs / 2, static_cast<int>(prompt_ms) * 50, {}, 512);
    for (int s = 0; s < 50; ++s) t.step(StageKind::kDecode, 10 * kMs, 5 * kMs, 100);
    const Report report = t.report();
    const Finding* prefill = finding_of(report, "launch-bound", "prefill");
    ASSERT_NE(prefill, nullptr);
    EXPECT_EQ(prefill->severity, prompt_ms == 4 ? FindingSeverity::kInfo : FindingSeverity::kMajor)
        << "half of TTFT, which is 0.8 or 44 % of the request";
    EXPECT_EQ(report.findings.front().stage, "decode");
  }
}

TEST(Consequence, TimeOfTheProfilerIsNotTheProgramsFault) {
  Timeline t;
  const Row prompt = t.step(StageKind::kPrefill, 100 * kMs, 10 * kMs, 200, {}, 512);
  // 53 ms more in which the profiler works.
  t.run.trace.steps.end_ns[prompt] += 53 * kMs;
  t.run.trace.steps.gpu_end_ns[prompt] += 53 * kMs;
  t.run.gap(IdleCause::kProfiler, t.at, 53 * kMs, prompt);
  t.at += 53 * kMs;
  t.run.trace.overheads.append({.start_ns = 0, .dur_ns = 53 * kMs, .thread = 0});
  const Report report = t.report();
  EXPECT_EQ(finding_of(report, "launch-bound"), nullptr);
  EXPECT_NE(stage_of(report, "prefill")->bound, Bound::kOverhead);
  const Finding* finding = finding_of(report, "profiler-distortion", "prefill");
  ASSERT_NE(finding, nullptr);
  EXPECT_DOUBLE_EQ(*finding->evidence[0].value, 53);

  Timeline slow;
  const Row eager = slow.step(StageKind::kPrefill, 100 * kMs, 40 * kMs, 1000, {}, 512);
  slow.run.trace.steps.end_ns[eager] += 100 * kMs;
  slow.run.gap(IdleCause::kProfiler, slow.at, 100 * kMs, eager);
  slow.at += 100 * kMs;
  const Report both = slow.report();
  const Finding* launches = finding_of(both, "launch-bound", "prefill");
  ASSERT_NE(launches, nullptr) << "40 of the program's own 100 ms";
  EXPECT_DOUBLE_EQ(launches->bound->from, 200);
  EXPECT_DOUBLE_EQ(launches->bound->to, 160) << "the profiler's time is not part of the gain";
}

TEST(Consequence, PreparingInputsIsFoundByItsShareOfTtft) {
  for (const bool cpu : {false, true}) {
    Timeline t;
    if (cpu) t.run.trace.devices.kind[0] = ProcessorKind::kCpu;
    t.pause(5'000 * kMs);
    for (int r = 0; r < 3; ++r) {
      t.step(StageKind::kVision, 90 * kMs, 90 * kMs, 1, "tokenize", -1, IdleCause::kHostWork);
      t.step(StageKind::kPrefill, 10 * kMs, 0, 10, "prefill", 512);
      for (int s = 0; s < 3; ++s) t.step(StageKind::kDecode, 5 * kMs, 0, 10, "decode");
    }
    const Report report = t.report();
    const Finding* finding = finding_of(report, "host-preprocessing", "tokenize");
    ASSERT_NE(finding, nullptr) << cpu;
    EXPECT_EQ(finding->severity, FindingSeverity::kCritical);
    EXPECT_EQ(finding->bound->metric, GainMetric::kTtft);
    EXPECT_DOUBLE_EQ(finding->bound->from, 100);
    EXPECT_DOUBLE_EQ(finding->bound->to, 10);
    for (const std::string& advice : finding->advice)
      EXPECT_TRUE(!cpu || advice.find("GPU") == std::string::npos) << advice;
  }
}

TEST(Consequence, APartOfTheModelThatShowsNoWorkPreparesNothing) {
  for (const auto& [name, prepares] : {std::pair{"vision encoder", false}, std::pair{"encode_image", false},
                                       std::pair{"vision preprocess", true}, std::pair{"image", true}}) {
    Timeline t;
    t.step(StageKind::kVision, 90 * kMs, 90 * kMs, 1, name, -1, IdleCause::kHostWork);
    t.step(StageKind::kPrefill, 10 * kMs, 0, 10, "prefill", 512);
    for (int s = 0; s < 3; ++s) t.step(StageKind::kDecode, 5 * kMs, 0, 10, "decode");
    EXPECT_EQ(finding_of(t.report(), "host-preprocessing", name) != nullptr, prepares) << name;
  }
}

TEST(Consequence, PartsAreNoMoreThanTheirWhole) {
  Timeline t;
  t.step(StageKind::kPrefill, 10 * kMs, 0, 10, {}, 512);
  for (int s = 0; s < 4; ++s) {
    // 4 ms in short gaps, and one of 4 ms behind other code, both of one cause.
    const Row row = t.step(StageKind::kDecode, 10 * kMs, 4 * kMs, 100);
    t.run.trace.steps.end_ns[row] += 4 * kMs;
    t.run.gap(IdleCause::kOperatorDispatch, t.at, 4 * kMs, row, t.run.op("aten::item", t.at, 4 * kMs));
    t.at += 4 * kMs;
  }
  const Report report = t.report();
  const Finding* launches = finding_of(report, "launch-bound", "decode");
  const Finding* code = finding_of(report, "cpu-bound-gap", "decode");
  ASSERT_TRUE(launches != nullptr && code != nullptr);
  EXPECT_DOUBLE_EQ(*launches->evidence[2].value, 4);
  EXPECT_DOUBLE_EQ(*code->evidence[0].value, 4);
  for (const Finding* finding : {launches, code})
    for (const Evidence& row : finding->evidence)
      EXPECT_TRUE(!row.metric.starts_with("of it") || *row.value <= 4) << row.metric;
}

TEST(Consequence, CopiesAreJudgedWithoutStages) {
  AnalyzedRecording run;
  run.window(0, 100 * kMs);
  run.gpu("Memcpy HtoD (Pinned -> Device)", Category::kCopy, 0, 88 * kMs, {.kind = GpuOpKind::kMemcpy});
  run.gpu("gemm", Category::kGemm, 88 * kMs, 12 * kMs, {});
  run.busy(0, 100 * kMs);
  const Report report = sound_report_of(run);
  const Finding* finding = finding_of(report, "copy-bound", "all");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->severity, FindingSeverity::kCritical);
  EXPECT_EQ(finding->bound->metric, GainMetric::kRecorded);
  EXPECT_DOUBLE_EQ(finding->bound->from, 100);
  EXPECT_DOUBLE_EQ(finding->bound->to, 12);
  EXPECT_EQ(finding->title.find("[unattributed]"), std::string::npos);
  for (const Evidence& row : finding->evidence) EXPECT_EQ(row.metric.find("per step"), std::string::npos);
  // Without its copies 12 ms are left; who must copy these bytes (1 MB at 64 GB/s of the data sheet) cannot get below.
  const Evidence& least = finding->evidence.back();
  EXPECT_EQ(least.metric, "bound assumes that the copies go; at the full rate of their links they take");
  EXPECT_NEAR(*least.value, 1e6 / 64e9 * 1e3, 2e-3);
}

TEST(Consequence, StagesThatHoldMostOfTheWorkAreJudgedAlone) {
  AnalyzedRecording run;
  run.window(0, 100 * kMs);
  const Row step = run.step(StageKind::kDecode, 0, 60 * kMs, 1, 100);
  run.gpu("gemm", Category::kGemm, 0, 60 * kMs, {step});
  run.gpu("Memcpy HtoD (Pinned -> Device)", Category::kCopy, 60 * kMs, 40 * kMs, {.kind = GpuOpKind::kMemcpy});
  run.busy(0, 100 * kMs);
  EXPECT_EQ(finding_of(sound_report_of(run), "copy-bound"), nullptr);
}

}  // namespace
}  // namespace llmprof
