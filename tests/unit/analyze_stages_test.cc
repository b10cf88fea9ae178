#include <gtest/gtest.h>

#include "analyze/roof.h"
#include "analyze_recording.h"

namespace llmprof {
namespace {

void expect_conserved(const Report& report) {
  EXPECT_FALSE(report.conservation.empty());
  for (const ConservationCheck& check : report.conservation)
    EXPECT_TRUE(check.ok) << check.name << ": expected " << check.expected << ", is " << check.actual;
}

TEST(Stages, FillTheWindowExactly) {
  const Report report = report_of(eager_run());
  expect_conserved(report);
  ASSERT_EQ(report.stages.size(), 3U);
  int64_t wall = 0;
  for (const StageTiming& stage : report.stages) {
    EXPECT_EQ(stage.gpu_busy_ms.ns + stage.gpu_idle_ms.ns, stage.wall_ms.ns) << stage.name;
    wall += stage.wall_ms.ns;
  }
  EXPECT_EQ(wall, 45 * kMs);
  const StageTiming* decode = stage_of(report, "decode");
  ASSERT_NE(decode, nullptr);
  EXPECT_EQ(decode->count, 3);
  EXPECT_EQ(decode->tokens, 3);
  EXPECT_EQ(decode->context, 515);
  EXPECT_EQ(decode->gpu_busy_ms.ns, 6 * kMs);
  EXPECT_EQ(decode->kernels, 600);
  EXPECT_EQ(decode->launches, 600);
  const StageTiming* outside = stage_of(report, kUnattributed);
  ASSERT_NE(outside, nullptr);
  EXPECT_EQ(outside->wall_ms.ns, 5 * kMs);
  EXPECT_EQ(outside->gpu_idle_ms.ns, 5 * kMs);
}

TEST(Stages, BusyIntervalsAreCutAtStepEdges) {
  AnalyzedRecording run;
  run.window(0, 100);
  const Row a = run.step(StageKind::kDecode, 10, 40), b = run.step(StageKind::kDecode, 50, 90);
  run.gpu("k", Category::kElementwise, 5, 60, {a});
  run.busy(5, 65);
  run.gap(IdleCause::kNoWork, 0, 5, kNoRow);
  run.gap(IdleCause::kHostWork, 65, 25, b);
  run.gap(IdleCause::kNoWork, 90, 10, kNoRow);
  const Report report = report_of(run);
  EXPECT_EQ(stage_of(report, "decode")->gpu_busy_ms.ns, 30 + 15);
  EXPECT_EQ(stage_of(report, "decode")->gpu_idle_ms.ns, 25);
  EXPECT_EQ(stage_of(report, kUnattributed)->gpu_busy_ms.ns, 5 + 10);
  expect_conserved(report);
}

TEST(StageSteps, AreMediansAndMeansOverWhatWasRecorded) {
  // Three recorded decode steps of 10, 20 and 60 us, with kernels of 4, 6 and 30 us and copies of 1, 2 and 6 us behind
  // them; a fourth, of 80 us, of which no kernel was recorded.
  AnalyzedRecording run;
  run.window(0, 170 * kUs);
  const int64_t lengths[] = {10, 20, 60}, kernels[] = {4, 6, 30}, copies[] = {1, 2, 6};
  int64_t at = 0;
  for (size_t i = 0; i < 3; ++i) {
    const int64_t kernel = kernels[i] * kUs, copy = copies[i] * kUs, end = at + lengths[i] * kUs;
    const StepId step = run.step(StageKind::kDecode, at, end, 1, 512);
    run.gpu("k", Category::kElementwise, at, kernel, {step});
    run.gpu("Memcpy DtoH (Device -> Pinned)", Category::kCopy, at + kernel, copy,
            {.step = step, .kind = GpuOpKind::kMemcpy});
    run.busy(at, at + kernel + copy);
    run.gap(IdleCause::kHostWork, at + kernel + copy, end - at - kernel - copy, step);
    at = end;
  }
  const StepId unseen = run.step(StageKind::kDecode, at, 170 * kUs, 1, 512);
  run.trace.steps.missing[unseen] = MissingKernels::kAll;
  run.trace.steps.state[unseen] = StepState::kNotRecorded;
  run.gap(IdleCause::kNotRecorded, at, 80 * kUs, unseen);
  const Report report = report_of(run);
  expect_conserved(report);
  ASSERT_EQ(report.stage_steps.size(), 2U);
  const StageStepRecord& row = report.stage_steps[0];
  EXPECT_EQ(row.stage, "decode");
  EXPECT_EQ(row.steps, 3);
  EXPECT_EQ(row.recorded_steps, 3);
  EXPECT_EQ(row.all_steps, 4);
  EXPECT_DOUBLE_EQ(row.step_p50_ms, 0.020);
  EXPECT_DOUBLE_EQ(row.step_mean_ms, 0.030);
  EXPECT_DOUBLE_EQ(row.gpu_busy_p50_ms.value_or(0), 0.008);
  EXPECT_NEAR(row.gpu_busy_mean_ms.value_or(0), 0.049 / 3, 1e-12);
  EXPECT_DOUBLE_EQ(row.gpu_idle_p50_ms.value_or(0), 0.012);
  EXPECT_NEAR(row.gpu_idle_mean_ms.value_or(0), 0.041 / 3, 1e-12);
  EXPECT_DOUBLE_EQ(row.kernels_p50_ms.value_or(0), 0.006);
  EXPECT_NEAR(row.kernels_mean_ms.value_or(0), 0.040 / 3, 1e-12);
  EXPECT_DOUBLE_EQ(row.copies_p50_ms.value_or(0), 0.002);
  EXPECT_DOUBLE_EQ(row.copies_mean_ms.value_or(0), 0.003);
  const StageStepRecord& not_recorded = report.stage_steps[1];
  EXPECT_EQ(not_recorded.recorded_steps, 0);
  EXPECT_EQ(not_recorded.all_steps, 4);
  EXPECT_DOUBLE_EQ(not_recorded.step_p50_ms, 0.080);
  EXPECT_FALSE(not_recorded.gpu_busy_p50_ms);
  EXPECT_FALSE(not_recorded.copies_mean_ms);
}

TEST(Stages, AMixtureSaysWhatItsSharesAreOf) {
  AnalyzedRecording run;
  run.window(0, 100'000);
  const Row step = run.step(StageKind::kDecode, 0, 100'000);
  run.gpu("k", Category::kOther, 0, 20'000, {step});
  run.busy(0, 20'000);
  run.gap(IdleCause::kLaunchCall, 20'000, 43'000, step);
  run.gap(IdleCause::kBlockingSync, 63'000, 37'000, step);
  const Report report = report_of(run);
  const StageTiming* decode = stage_of(report, "decode");
  ASSERT_NE(decode, nullptr);
  EXPECT_EQ(decode->bound, Bound::kMixed);
  EXPECT_EQ(decode->bound_detail, "overhead 43 %, sync 37 % of its time");
}

TEST(Stages, WhatIsNotExplainedIsNoMixture) {
  // 60 of 100 us in a kernel whose arithmetic is unknown, 15 in launches, the rest without a cause.
  AnalyzedRecording run;
  run.window(0, 100'000);
  const Row step = run.step(StageKind::kDecode, 0, 100'000);
  run.gpu("k", Category::kOther, 0, 60'000, {step});
  run.busy(0, 60'000);
  run.gap(IdleCause::kLaunchCall, 60'000, 15'000, step);
  run.gap(IdleCause::kUnknown, 75'000, 25'000, step);
  const Report report = report_of(run);
  const StageTiming* decode = stage_of(report, "decode");
  ASSERT_NE(decode, nullptr);
  EXPECT_FALSE(decode->bound);
  EXPECT_FALSE(decode->bound_frac);
}

TEST(Host, CountsNoOperatorsWhereNoneWereRecorded) {
  AnalyzedRecording run;
  run.window(0, 100'000);
  const Row step = run.step(StageKind::kDecode, 0, 100'000);
  run.gpu("k", Category::kOther, 0, 100'000, {step});
  run.busy(0, 100'000);
  const Report without = report_of(run);
  ASSERT_EQ(without.host.size(), 1U);
  EXPECT_FALSE(without.host[0].operators.known);
  EXPECT_FALSE(without.host[0].operators_ms.known);
  run.op("aten::mm", 10, 20);
  const Report with = report_of(run);
  EXPECT_TRUE(with.host[0].operators.known);
  EXPECT_EQ(with.host[0].operators, 1);
}

TEST(Idle, APlaceCountsOncePerGap) {
  // One gap in four parts: the host is in the same operator in three of them, for two causes.
  AnalyzedRecording run;
  run.window(0, 100'000);
  const Row step = run.step(StageKind::kDecode, 0, 100'000);
  run.gpu("k", Category::kOther, 0, 60'000, {step});
  run.busy(0, 60'000);
  const Row op = run.op("aten::linear", 50'000, 50'000);
  run.gap(IdleCause::kOperatorDispatch, 60'000, 10'000, step, op);
  run.gap(IdleCause::kHostWork, 70'000, 10'000, step, op);
  run.gap(IdleCause::kUnknown, 80'000, 10'000, step);
  run.gap(IdleCause::kOperatorDispatch, 90'000, 10'000, step, op);
  const Report report = report_of(run);
  ASSERT_EQ(report.idle_sites.size(), 1U);
  EXPECT_EQ(report.idle_sites[0].gaps, 1);
  EXPECT_EQ(report.idle_sites[0].total_ms.ns, 30'000);
}

TEST(Stages, DevicesAreAccountedForSeparately) {
  AnalyzedRecording run;
  const Row other = run.add_stream(1);
  run.window(0, 100, 0);
  run.window(0, 200, 1);
  const Row a = run.step(StageKind::kDecode, 0, 100, 1, 10, {}, 0),
            b = run.step(StageKind::kDecode, 0, 200, 1, 10, {}, 1);
  run.gpu("k", Category::kGemm, 0, 100, {a});
  run.gpu("k", Category::kGemm, 0, 150, {.step = b, .stream = other});
  run.busy(0, 100, 0);
  run.busy(0, 150, 1);
  run.gap(IdleCause::kUnknown, 150, 50, b, kNoRow, kNoRow, 1);
  const Report report = report_of(run);
  expect_conserved(report);
  ASSERT_EQ(report.stages.size(), 2U);
  EXPECT_EQ(report.stages[0].device, 0);
  EXPECT_EQ(report.stages[1].gpu_idle_ms.ns, 50);
  EXPECT_EQ(report.latency->itl_ms->n, 1);  // ranks run the same step; it counts once
}

TEST(Stages, MfuAndMbuAgainstTheDataSheet) {
  const Report report = report_of(eager_run());
  ASSERT_TRUE(report.device && report.device->bytes_per_s);
  const StageTiming* prefill = stage_of(report, "prefill");
  const double flops = 2.0 * 512 * 14336 * 4096;
  EXPECT_DOUBLE_EQ(*prefill->flops, flops);
  EXPECT_EQ(prefill->flops_provenance, Provenance::kCounted);
  EXPECT_NEAR(*prefill->tflops, flops / 0.010 / 1e12, 1e-9);
  EXPECT_NEAR(*prefill->mfu, flops / 0.010 / *report.device->peak_of(DType::kBf16), 1e-12);
  EXPECT_FALSE(prefill->mfu_at_clock);  // no clock in the recording
  const StageTiming* decode = stage_of(report, "decode");
  const double weights = 600 * 2.0 * 4096 * 4096;
  EXPECT_DOUBLE_EQ(*decode->weight_bytes, weights);
  EXPECT_NEAR(*decode->mbu, weights / 0.030 / *report.device->bytes_per_s, 1e-12);
  EXPECT_LT(*decode->intensity, 1.01);
  EXPECT_NEAR(*decode->roof_tflops, *decode->intensity * *report.device->bytes_per_s / 1e12, 1e-9);
  EXPECT_EQ(decode->bound, Bound::kOverhead);
  EXPECT_FALSE(decode->energy_j);
}

TEST(Stages, UnknownGpuHasNoPeaksAndSaysSo) {
  const Report report = report_of(eager_run(false));
  EXPECT_FALSE(report.device);
  const StageTiming* prefill = stage_of(report, "prefill");
  EXPECT_TRUE(prefill->flops);  // counting needs no GPU
  EXPECT_FALSE(prefill->mfu);
  EXPECT_FALSE(prefill->mbu);
  bool counted = false, told = false;
  for (const DiagnosticRecord& row : report.diagnostics) counted |= name_of(row.key) == "no-device-properties";
  for (const CannotTell& row : report.cannot_tell) told |= row.how_to_find_out.find("--gpu") != std::string::npos;
  EXPECT_TRUE(counted);
  EXPECT_TRUE(told);
  const Report named = report_of(eager_run(false), {.gpu = "H200-SXM-141GB"});
  EXPECT_TRUE(stage_of(named, "prefill")->mfu);
}

TEST(Stages, WrongNamesAreErrors) {
  const AnalyzedRecording run = eager_run();
  const Result<Report> gpu = analyze(run.trace, {.gpu = "H2000"});
  ASSERT_FALSE(gpu);
  EXPECT_FALSE(gpu.error().text().empty());
  EXPECT_FALSE(analyze(run.trace, {.model = "llama-9-8b"}));
  EXPECT_FALSE(analyze(run.trace, {.batch = -1}));
}

TEST(Stages, FlopsAreAbsentWithoutShapes) {
  AnalyzedRecording run = eager_run();
  for (Row g = 0; g < run.trace.gpu_ops.size(); ++g)
    if (run.trace.gpu_links.step[g] > 0) run.trace.gpu_links.work[g] = kNoRow;
  const Report report = report_of(run);
  const StageTiming* decode = stage_of(report, "decode");
  EXPECT_FALSE(decode->flops);
  EXPECT_FALSE(decode->mfu);
  EXPECT_EQ(decode->flop_coverage_frac, 0.0);
  EXPECT_TRUE(stage_of(report, "prefill")->flops);
  bool told = false;
  for (const CannotTell& row : report.cannot_tell) told |= row.question.find("FLOPs does decode") != std::string::npos;
  EXPECT_TRUE(told);
  // With the model named they come from the formula, and say so.
  const Report modelled = report_of(run, {.model = "llama-3.1-8b"});
  const StageTiming* by_formula = stage_of(modelled, "decode");
  ASSERT_TRUE(by_formula->flops);
  EXPECT_EQ(by_formula->flops_provenance, Provenance::kFormula);
  // 15.0 GFLOP per token for weights and head, three steps; attention adds 4 * 32 heads * 128 * context * 32 layers.
  EXPECT_NEAR(*by_formula->flops, 3 * 15009316864.0 + 4.0 * 32 * 128 * 32 * (513 + 514 + 515), 1);
  EXPECT_TRUE(by_formula->mbu);
}

TEST(Stages, SiblingKernelsOfOneOperatorCountAsCovered) {
  AnalyzedRecording run;
  run.window(0, 100);
  const Row s = run.step(StageKind::kDecode, 0, 100, 1, 10);
  const Row op = run.op("aten::mm", 0, 10);
  run.gpu("gemm_splitk", Category::kGemm, 0, 60, {s, op, kNoRow, run.gemm(DType::kBf16, 1, 64, 64)});
  run.gpu("splitk_reduce", Category::kGemm, 60, 40, {s, op});
  run.busy(0, 100);
  const Report report = report_of(run);
  EXPECT_DOUBLE_EQ(*report.stages[0].flop_coverage_frac, 1);
  EXPECT_DOUBLE_EQ(*report.stages[0].flops, 2.0 * 64 * 64);
}

TEST(Roof, BoundFollowsFromIntensity) {
  const double peak = 1e15, bandwidth = 4e12;
  // 1 ms of arithmetic against 0.25 ms of traffic, done in 2 ms.
  const RoofPoint compute = place_on_roof(1e12, 1e9, 2e6, 1, peak, bandwidth);
  EXPECT_EQ(compute.bound, Bound::kCompute);
  EXPECT_DOUBLE_EQ(*compute.roof_ns, 1e6);
  EXPECT_EQ(place_on_roof(1e9, 4e9, 2e6, 1, peak, bandwidth).bound, Bound::kMemory);
  // Short and far from the roof, and long but below a tenth of it.
  EXPECT_EQ(place_on_roof(1e6, 1e6, 3e3, 1, peak, bandwidth).bound, Bound::kLatency);
  EXPECT_EQ(place_on_roof(1e9, 1e8, 1e6, 1, peak, bandwidth).bound, Bound::kLatency);
  // Arithmetic without a known peak decides nothing; a pure copy needs only the bandwidth.
  EXPECT_EQ(place_on_roof(1e9, 4e9, 2e6, 1, std::nullopt, bandwidth).bound, Bound::kUnknown);
  EXPECT_EQ(place_on_roof(0, 4e9, 2e6, 1, std::nullopt, bandwidth).bound, Bound::kMemory);
}

// A stage of 10 ms with products of known shape for 9.2 of its 10 ms of arithmetic.
TEST(Stages, APartOfTheArithmeticGivesALowerBoundOfMfu) {
  AnalyzedRecording run;
  run.window(0, 10'000'000);
  const Row step = run.step(StageKind::kDecode, 0, 10'000'000, 1, 100);
  const Row work = run.gemm(DType::kBf16, 4096, 14336, 4096);
  run.gpu("gemm", Category::kGemm, 0, 9'200'000, {.step = step, .work = work});
  run.gpu("flash_fwd", Category::kAttention, 9'200'000, 800'000, {.step = step});
  run.busy(0, 10'000'000);
  const Result<Report> report = analyze(run.trace);
  ASSERT_TRUE(report);
  const StageTiming& stage = *stage_of(*report, "decode");
  EXPECT_FALSE(stage.mfu);
  EXPECT_DOUBLE_EQ(*stage.flop_coverage_frac, 0.92);
  ASSERT_TRUE(stage.mfu_at_least && stage.mbu_at_least);
  const double flops = 2.0 * 4096 * 14336 * 4096;
  EXPECT_NEAR(*stage.mfu_at_least, flops / *report->device->peak_of(DType::kBf16) / 0.010, 1e-12);
  EXPECT_NEAR(*stage.mbu_at_least, 2.0 * 14336 * 4096 / *report->device->bytes_per_s / 0.010, 1e-12);
}

}  // namespace
}  // namespace llmprof
