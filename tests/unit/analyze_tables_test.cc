// Operators, kernels, categories, idle, memory and the recognition of models.
#include <gtest/gtest.h>

#include <algorithm>

#include "analyze_recording.h"

namespace llmprof {
namespace {

const OperatorRecord* operator_of(const Report& report, std::string_view name, std::string_view stage) {
  for (const OperatorRecord& row : report.operators)
    if (row.name == name && row.stage == stage) return &row;
  return nullptr;
}

TEST(Operators, TotalsHoldEnclosedOnes) {
  const Report report = report_of(eager_run());
  const OperatorRecord* linear = operator_of(report, "aten::linear", "prefill");
  const OperatorRecord* mm = operator_of(report, "aten::mm", "prefill");
  ASSERT_TRUE(linear != nullptr && mm != nullptr);
  EXPECT_EQ(linear->cpu_total_ms.ns, 3 * kMs);
  EXPECT_EQ(linear->cpu_self_ms.ns, kMs);
  EXPECT_EQ(linear->gpu_total_ms.ns, 8 * kMs);
  EXPECT_EQ(linear->gpu_self_ms.ns, 0);
  EXPECT_EQ(linear->top_level_calls, 1);
  EXPECT_EQ(mm->gpu_self_ms.ns, 8 * kMs);
  EXPECT_EQ(mm->top_level_calls, 0);
  EXPECT_EQ(mm->shapes, "[[512, 4096], [4096, 4096]]");
  EXPECT_DOUBLE_EQ(*mm->flops, 2.0 * 512 * 14336 * 4096);
  EXPECT_FALSE(linear->flops);  // its child did the arithmetic
  const OperatorRecord* decode = operator_of(report, "aten::mm", "decode");
  EXPECT_EQ(decode->calls, 600);
  EXPECT_DOUBLE_EQ(*decode->gpu_mean_ms, 0.01);
}

TEST(Operators, ACallInsideItselfCountsOnce) {
  AnalyzedRecording run;
  run.window(0, 100);
  const Row s = run.step(StageKind::kDecode, 0, 100);
  const Row outer = run.op("aten::to", 0, 50), middle = run.op("aten::copy_", 5, 40, outer);
  const Row inner = run.op("aten::to", 10, 20, middle);
  run.gpu("k", Category::kCopy, 60, 30, {s, inner});
  run.busy(60, 90);
  run.gap(IdleCause::kHostWork, 0, 60, s);
  run.gap(IdleCause::kHostWork, 90, 10, s);
  const Report report = report_of(run);
  const OperatorRecord* to = operator_of(report, "aten::to", "decode");
  EXPECT_EQ(to->calls, 2);
  EXPECT_EQ(to->cpu_total_ms.ns, 50);
  EXPECT_EQ(to->gpu_total_ms.ns, 30);
  EXPECT_EQ(to->cpu_self_ms.ns, 50 - 40 + 20);
}

TEST(Kernels, GroupsTellMedianAndShare) {
  AnalyzedRecording run;
  run.window(0, 1000);
  const Row s = run.step(StageKind::kDecode, 0, 1000);
  const Row config = run.config(16, 128);
  run.trace.launch_configs.occupancy_frac[config] = 0.5F;
  for (const int64_t dur : {10, 40, 20, 30})
    run.gpu("a", Category::kNorm, dur * 10, dur, {.step = s, .config = config});
  run.gpu("b", Category::kNorm, 600, 300, {s});
  run.busy(100, 500);
  run.gap(IdleCause::kUnknown, 500, 500, s);
  run.gap(IdleCause::kUnknown, 0, 100, s);
  const Report report = report_of(run);
  ASSERT_EQ(report.kernels_topk.size(), 2U);
  EXPECT_EQ(report.kernels_topk[0].name, "b");
  EXPECT_FALSE(report.kernels_topk[0].grid);
  const KernelRecord& a = report.kernels_topk[1];
  EXPECT_EQ(a.calls, 4);
  EXPECT_EQ(a.total_ms.ns, 100);
  EXPECT_EQ(a.min_ms.ns, 10);
  EXPECT_EQ(a.max_ms.ns, 40);
  EXPECT_DOUBLE_EQ(a.p50_ms, 25e-6);
  EXPECT_DOUBLE_EQ(a.share, 0.25);
  EXPECT_EQ(a.grid, "16x1x1");
  EXPECT_EQ(a.occupancy_frac, 0.5);
  EXPECT_EQ(a.provenance, Provenance::kMeasured);
  EXPECT_FALSE(a.flops);
  EXPECT_EQ(report_of(run, {.top = 1}).kernels_topk.size(), 1U);
  EXPECT_EQ(report_of(run, {.sort = SortKey::kCalls}).kernels_topk[0].name, "a");
}

TEST(Roofline, RowsTellAttainableAndGain) {
  const Report report = report_of(eager_run());
  const auto row = std::find_if(report.roofline.begin(), report.roofline.end(),
                                [](const RooflineRecord& r) { return r.name == "gemm_big"; });
  ASSERT_NE(row, report.roofline.end());
  const double peak = *report.device->peak_of(DType::kBf16), bandwidth = *report.device->bytes_per_s;
  EXPECT_DOUBLE_EQ(*row->ridge, peak / bandwidth);
  EXPECT_DOUBLE_EQ(*row->attainable_tflops, std::min(peak, row->intensity * bandwidth) / 1e12);
  EXPECT_NEAR(*row->of_roof_frac, row->tflops / *row->attainable_tflops, 1e-12);
  EXPECT_NEAR(*row->gain_ms, 8 * (1 - *row->of_roof_frac), 1e-9);
}

// The kernel that adds up the parts of a split product is part of that product's time.
TEST(Categories, TheShareOfTheRoofHoldsHelperKernels) {
  AnalyzedRecording run;
  run.window(0, kMs);
  const Row s = run.step(StageKind::kDecode, 0, kMs);
  const Row mm = run.op("aten::mm", 0, kMs / 2, kNoRow, "[[1, 4096], [4096, 65536]]");
  run.gpu("gemm_splitK", Category::kGemm, 0, 200'000, {s, mm, kNoRow, run.gemm(DType::kBf16, 1, 65536, 4096)});
  run.gpu("splitKreduce_kernel", Category::kGemm, 200'000, 50'000, {s, mm});
  run.busy(0, 250'000);
  const Report report = report_of(run);
  // One row in and one out stay in the cache.
  const double roof_ns = 4096.0 * 65536 * 2 / *report.device->bytes_per_s * 1e9;
  ASSERT_EQ(report.categories.size(), 1U);
  EXPECT_NEAR(*report.categories[0].of_roof_frac, roof_ns / 250'000, 1e-9);
}

TEST(Idle, CausesAndSites) {
  AnalyzedRecording run;
  run.window(0, 1000);
  const Row s = run.step(StageKind::kDecode, 0, 1000);
  const Row op = run.op("aten::item", 0, 500);
  const Row frame = run.python("model.py(3): forward", 0, 900);
  run.gpu("k", Category::kNorm, 900, 100, {s});
  run.busy(900, 1000);
  run.gap(IdleCause::kBlockingSync, 0, 600, s, op, frame);
  run.gap(IdleCause::kHostWork, 600, 200, s, kNoRow, frame);
  run.gap(IdleCause::kHostWork, 800, 100, s);
  const Report report = report_of(run);
  ASSERT_EQ(report.idle.size(), 2U);
  EXPECT_EQ(report.idle[0].cause, "blocking-sync");
  EXPECT_EQ(report.idle[0].top_operator, "aten::item");
  EXPECT_DOUBLE_EQ(*report.idle[0].wall_share, 0.6);
  EXPECT_EQ(report.idle[1].gaps, 1) << "two parts of one gap, behind two places of the host";
  EXPECT_DOUBLE_EQ(report.idle[1].mean_us, 0.3);
  EXPECT_FALSE(report.idle[1].top_operator);
  const auto site = std::find_if(report.idle_sites.begin(), report.idle_sites.end(),
                                 [](const IdleSiteRecord& row) { return row.kind == SiteKind::kPython; });
  ASSERT_NE(site, report.idle_sites.end());
  EXPECT_EQ(site->total_ms.ns, 800);
  EXPECT_DOUBLE_EQ(site->share, 800.0 / 900);
}

TEST(Memory, PeakOperatorsAndThinnedSeries) {
  AnalyzedRecording run = eager_run();
  const int64_t base = 1'000'000'000;
  for (int64_t e = 0; e < 20000; ++e) {
    const int64_t level = base + (e == 13337 ? 777'777'777 : (e % 7) * 1000);
    run.memory(e * 2000, e % 2 == 0 ? 4096 : -4096, level, 2 * base);
  }
  const Report report = report_of(run);
  ASSERT_TRUE(report.memory);
  EXPECT_EQ(report.memory->peak_allocated_bytes, static_cast<double>(base + 777'777'777));
  EXPECT_EQ(report.memory->peak_reserved_bytes, 2.0 * base);
  EXPECT_EQ(report.memory->peak_stage, "decode");
  EXPECT_EQ(report.memory->allocations, 10000);
  EXPECT_LE(report.memory->series.size(), 500U);
  double highest = 0;
  for (size_t i = 0; i < report.memory->series.size(); ++i) {
    highest = std::max(highest, report.memory->series[i].allocated_bytes.value_or(0));
    if (i > 0) {
      EXPECT_LE(report.memory->series[i - 1].time_ms, report.memory->series[i].time_ms);
    }
  }
  EXPECT_EQ(highest, *report.memory->peak_allocated_bytes);
  int64_t allocations = 0;
  for (const AllocationRecord& row : report.memory->operators) allocations += row.allocations;
  EXPECT_EQ(allocations, 10000);
}

TEST(Memory, AbsentWithoutEvents) {
  const Report report = report_of(eager_run());
  EXPECT_FALSE(report.memory);
  bool told = false;
  for (const CannotTell& row : report.cannot_tell)
    told |= row.how_to_find_out.find("profile_memory") != std::string::npos;
  EXPECT_TRUE(told);
}

// GEMMs of one decode step of Qwen2.5-0.5B: 24 layers and the tied head.
AnalyzedRecording qwen_step(int64_t vocabulary) {
  AnalyzedRecording run;
  run.window(0, 10 * kMs);
  const Row s = run.step(StageKind::kDecode, 0, 10 * kMs, 1, 100);
  const Row works[] = {run.gemm(DType::kBf16, 1, 896, 896),  run.gemm(DType::kBf16, 1, 128, 896),
                       run.gemm(DType::kBf16, 1, 128, 896),  run.gemm(DType::kBf16, 1, 896, 896),
                       run.gemm(DType::kBf16, 1, 4864, 896), run.gemm(DType::kBf16, 1, 4864, 896),
                       run.gemm(DType::kBf16, 1, 896, 4864)};
  int64_t at = 0;
  for (int layer = 0; layer < 24; ++layer)
    for (const Row work : works) run.gpu("gemm", Category::kGemm, at += 5000, 5000, {s, kNoRow, kNoRow, work});
  run.gpu("head", Category::kGemm, at + 5000, 5000, {s, kNoRow, kNoRow, run.gemm(DType::kBf16, 1, vocabulary, 896)});
  run.busy(5000, at + 10000);
  run.gap(IdleCause::kUnknown, 0, 5000, s);
  run.gap(IdleCause::kUnknown, at + 10000, 10 * kMs - at - 10000, s);
  return run;
}

TEST(Model, IsRecognisedByItsGemms) {
  const Report report = report_of(qwen_step(151936));
  ASSERT_TRUE(report.model);
  EXPECT_EQ(report.model->id, "Qwen/Qwen2.5-0.5B");
  EXPECT_EQ(report.model->origin, ModelOrigin::kRecognised);
  EXPECT_EQ(report.model->params, 494032768.0);
  const auto check = std::find_if(report.coverage.begin(), report.coverage.end(),
                                  [](const CoverageRecord& row) { return row.name == "counted-over-formula: decode"; });
  ASSERT_NE(check, report.coverage.end());
  EXPECT_NEAR(*check->frac, 1, 0.01);  // this recording has no attention
}

TEST(Model, AnotherVocabularyIsNotRecognised) {
  const Report report = report_of(qwen_step(151000));
  EXPECT_FALSE(report.model);
}

}  // namespace
}  // namespace llmprof
