#include <gtest/gtest.h>

#include <set>

#include "analyze/finding.h"
#include "analyze_recording.h"

namespace llmprof {
namespace {

// One decode step of 10 ms: `busy_ns` of kernels as described, the rest idle for one cause.
struct StepPlan {
  std::string_view kernel = "gemv";
  Category category = Category::kGemm;
  int64_t kernels = 100;
  int64_t kernel_ns = 90'000;
  IdleCause cause = IdleCause::kOperatorDispatch;
  int64_t launches = -1;  // -1: one per kernel
  Row work = kNoRow;
  Row config = kNoRow;
  Row op = kNoRow;
};
void add_step(AnalyzedRecording& run, int64_t start, const StepPlan& plan) {
  const Row s = run.step(StageKind::kDecode, start, start + 10 * kMs, 1, 513);
  const int64_t period = 10 * kMs / plan.kernels;
  Row api = kNoRow;
  for (int64_t k = 0; k < plan.kernels; ++k) {
    const int64_t at = start + k * period;
    if (plan.launches < 0 || k < plan.launches) api = run.api("cudaLaunchKernel", at, 100);
    if (period > plan.kernel_ns) run.gap(plan.cause, at, period - plan.kernel_ns, s);
    run.gpu(plan.kernel, plan.category, at + period - plan.kernel_ns, plan.kernel_ns,
            {s, plan.op, api, plan.work, plan.config});
    run.busy(at + period - plan.kernel_ns, at + period);
  }
}

TEST(Findings, RegistryHoldsEveryIdOnce) {
  std::set<std::string_view> ids;
  for (const FindingRule& rule : finding_rules()) {
    EXPECT_TRUE(ids.insert(rule.id).second) << rule.id;
    EXPECT_FALSE(rule.needs.empty());
    EXPECT_FALSE(rule.advice.empty());
    EXPECT_EQ(rule.most == FindingSeverity::kCritical, rule.most_why.empty()) << rule.id;
  }
  for (const char* id : {"padded-batch",       "padded-attention",
                         "launch-bound",       "cpu-bound-gap",
                         "sync-bound",         "memory-bound-weights",
                         "memory-bound-kv",    "compute-bound",
                         "attention-unfused",  "tensor-cores-idle",
                         "dtype-wide",         "gemm-shape-misaligned",
                         "wave-quantization",  "low-occupancy",
                         "uncoalesced-access", "l2-thrash",
                         "norm-unfused",       "small-kernels-unfused",
                         "kv-cache-copy",      "pageable-copy",
                         "copy-bound",         "allocator-churn",
                         "power-throttled",    "thermal-throttled",
                         "clock-drop",         "comm-bound",
                         "rank-skew",          "host-preprocessing",
                         "python-gc",          "first-call-cost",
                         "graph-padding",      "dense-experts",
                         "moe-imbalance",      "no-single-cause",
                         "batch-too-small",    "profiler-distortion",
                         "logits-all-tokens",  "streams-taking-turns",
                         "converted-weights",  "recomputation",
                         "separate-adapters",  "products-in-pieces",
                         "full-sort",          "data-movement",
                         "no-kv-cache",        "gathered-weights",
                         "oversized-tensors",  "graphs-made-anew",
                         "copies-one-stream",  "double-precision",
                         "launches-block",     "cpu-contention",
                         "layout-conversion",  "no-input",
                         "rewritten-weights",  "repeated-weight-reads",
                         "graphs-in-pieces",   "uneven-gpus",
                         "python-traced"})
    EXPECT_EQ(ids.count(id), 1U) << id;
  EXPECT_EQ(ids.size(), 59U);
}

TEST(Findings, LaunchBoundGivesTheBusyTimeAsBound) {
  const Report report = report_of(eager_run());
  const Finding* finding = finding_of(report, "launch-bound", "decode");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->severity, FindingSeverity::kCritical);  // 8 of 10 ms of TPOT
  ASSERT_TRUE(finding->bound);
  EXPECT_EQ(finding->bound->metric, GainMetric::kTpot);
  EXPECT_DOUBLE_EQ(finding->bound->from, 10);
  EXPECT_DOUBLE_EQ(finding->bound->to, 2);
  EXPECT_DOUBLE_EQ(*finding->evidence[0].value, 0.2);
  EXPECT_EQ(report.findings.front().id, "launch-bound");
  EXPECT_EQ(finding_of(report, "cpu-bound-gap", "decode"), nullptr);
  // The prefill waits 2 ms for its only launch: that is no launch overhead.
  EXPECT_NE(finding_of(report, "cpu-bound-gap", "prefill"), nullptr);
  EXPECT_EQ(finding_of(report, "launch-bound", "prefill"), nullptr);
}

TEST(Findings, BusyGraphReplayIsNotLaunchBound) {
  AnalyzedRecording run;
  run.window(0, 10 * kMs);
  add_step(run, 0, {.kernels = 1000, .kernel_ns = 9500, .cause = IdleCause::kGraphInternal, .launches = 1});
  const Report report = report_of(run);
  EXPECT_EQ(finding_of(report, "launch-bound"), nullptr);
  EXPECT_EQ(finding_of(report, "cpu-bound-gap"), nullptr);
  EXPECT_EQ(finding_of(report, "profiler-distortion"), nullptr);
}

TEST(Findings, FewLongGapsAreHostWorkAndNotLaunches) {
  AnalyzedRecording run;
  run.window(0, 10 * kMs);
  add_step(run, 0, {.kernels = 10, .kernel_ns = 400'000, .cause = IdleCause::kHostWork});
  const Report report = report_of(run);
  EXPECT_EQ(finding_of(report, "launch-bound"), nullptr);
  const Finding* gap = finding_of(report, "cpu-bound-gap");
  ASSERT_NE(gap, nullptr);
  EXPECT_DOUBLE_EQ(gap->bound->to, 4);
}

TEST(Findings, SyncBound) {
  AnalyzedRecording run;
  run.window(0, 10 * kMs);
  add_step(run, 0, {.kernels = 10, .kernel_ns = 800'000, .cause = IdleCause::kBlockingSync});
  const Report report = report_of(run);
  ASSERT_NE(finding_of(report, "sync-bound"), nullptr);
  EXPECT_EQ(finding_of(report, "launch-bound"), nullptr);
  EXPECT_EQ(finding_of(report, "sync-bound")->severity, FindingSeverity::kMajor);
}

TEST(Findings, WeightsBindDecodeAndSmallBatchesWasteThem) {
  AnalyzedRecording run;
  run.window(0, 10 * kMs);
  // 117 MB of weights in 30 us: 81 % of the H200's 4.8 TB/s.
  const Row work = run.gemm(DType::kBf16, 1, 14336, 4096);
  add_step(run, 0, {.kernels = 330, .kernel_ns = 30'000, .work = work});
  const Report report = report_of(run);
  const Finding* finding = finding_of(report, "memory-bound-weights");
  ASSERT_NE(finding, nullptr);
  EXPECT_NEAR(*finding->evidence[5].value, 0.815, 0.01);
  ASSERT_NE(finding_of(report, "batch-too-small"), nullptr);
  EXPECT_EQ(finding_of(report, "compute-bound"), nullptr);
  EXPECT_EQ(stage_of(report, "decode")->bound, Bound::kMemory);
}

// Bytes and time must be of the same steps: those that are judged.
TEST(Findings, TheShareOfBandwidthIsThatOfTheJudgedSteps) {
  AnalyzedRecording run;
  run.window(0, 60 * kMs);
  const Row work = run.gemm(DType::kBf16, 1, 14336, 4096);
  const StepPlan plan{.kernels = 330, .kernel_ns = 30'000, .work = work};
  add_step(run, 0, plan);
  run.trace.steps.end_ns[0] = 20 * kMs;  // a cold one
  run.gap(IdleCause::kHostWork, 10 * kMs, 10 * kMs, 0);
  for (int64_t start = 20 * kMs; start < 60 * kMs; start += 10 * kMs) add_step(run, start, plan);
  find_steady(run.trace);
  const Report report = report_of(run);
  const Finding* finding = finding_of(report, "memory-bound-weights");
  ASSERT_NE(finding, nullptr);
  EXPECT_NEAR(*finding->evidence[5].value, 0.815, 0.01);
}

TEST(Findings, SlowGemmsAreNotMemoryBound) {
  AnalyzedRecording run;
  run.window(0, 10 * kMs);
  const Row work = run.gemm(DType::kBf16, 1, 896, 896);  // 1.6 MB in 30 us: 1 % of the bandwidth
  add_step(run, 0, {.kernels = 330, .kernel_ns = 30'000, .work = work});
  EXPECT_EQ(finding_of(report_of(run), "memory-bound-weights"), nullptr);
}

TEST(Findings, WithoutAGpuNothingIsSaidAboutItsLimits) {
  AnalyzedRecording run(false);
  run.window(0, 10 * kMs);
  const Row work = run.gemm(DType::kBf16, 1, 14336, 4096);
  add_step(run, 0, {.kernels = 330, .kernel_ns = 30'000, .work = work, .config = run.config(8, 128)});
  const Report report = report_of(run);
  for (const char* id : {"memory-bound-weights", "memory-bound-kv", "compute-bound", "batch-too-small", "low-occupancy",
                         "wave-quantization"})
    EXPECT_EQ(finding_of(report, id), nullptr) << id;
}

TEST(Findings, CacheGrownByConcatenation) {
  for (const bool grows : {true, false}) {
    AnalyzedRecording run;
    run.window(0, 10 * kMs);
    const Row op =
        run.op("aten::cat", 0, 10, kNoRow,
               grows ? "[[[1, 8, 512, 128], [1, 8, 1, 128]], []]" : "[[[1, 32, 1, 64], [1, 32, 1, 64]], []]");
    add_step(run, 0, {.kernel = "CatArrayBatchedCopy", .category = Category::kKvCache, .op = op});
    EXPECT_EQ(finding_of(report_of(run), "kv-cache-copy") != nullptr, grows);
  }
}

TEST(Findings, UnfusedAttentionIsSeenInTheOperators) {
  for (const int softmaxes : {24, 1}) {  // one per layer, or the sampler's only
    AnalyzedRecording run;
    run.window(0, 10 * kMs);
    const Row s = run.step(StageKind::kDecode, 0, 10 * kMs, 1, 513);
    int64_t at = 0;
    for (int layer = 0; layer < softmaxes; ++layer) {
      for (const char* name : {"aten::bmm", "aten::_softmax", "aten::bmm"}) {
        run.gpu(name, Category::kAttention, at, 100'000, {s, run.op(name, at, 1000)});
        run.busy(at, at + 100'000);
        at += 100'000;
      }
    }
    run.gap(IdleCause::kUnknown, at, 10 * kMs - at, s);
    EXPECT_EQ(finding_of(report_of(run), "attention-unfused") != nullptr, softmaxes == 24);
  }
}

TEST(Findings, Fp32GemmsLeaveTensorCoresIdle) {
  AnalyzedRecording run;
  run.window(0, 10 * kMs);
  add_step(run, 0, {.kernel = "cutlass_80_simt_sgemm_128x32", .work = run.gemm(DType::kFp32, 64, 4096, 4096)});
  const Report report = report_of(run);
  EXPECT_NE(finding_of(report, "tensor-cores-idle"), nullptr);
  EXPECT_NE(finding_of(report, "dtype-wide"), nullptr);
  AnalyzedRecording ffma;  // as cuBLAS names them on Hopper
  ffma.window(0, 10 * kMs);
  add_step(
      ffma, 0,
      {.kernel = "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x128x8_stage3_warpsize2x2x1_ffma_aligna4_alignc4_"
                 "execute_kernel__5x_cublas",
       .work = ffma.gemm(DType::kFp32, 64, 4096, 4096)});
  EXPECT_NE(finding_of(report_of(ffma), "tensor-cores-idle"), nullptr);
  AnalyzedRecording tf32;
  tf32.window(0, 10 * kMs);
  add_step(tf32, 0, {.kernel = "cutlass_80_tensorop_s1688gemm_tf32", .work = tf32.gemm(DType::kFp32, 64, 4096, 4096)});
  EXPECT_EQ(finding_of(report_of(tf32), "tensor-cores-idle"), nullptr);
}

TEST(Findings, MisalignedShapes) {
  for (const int64_t n : {int64_t{4097}, int64_t{4096}}) {
    AnalyzedRecording run;
    run.window(0, 10 * kMs);
    add_step(run, 0, {.work = run.gemm(DType::kBf16, 512, n, 4096)});
    EXPECT_EQ(finding_of(report_of(run), "gemm-shape-misaligned") != nullptr, n == 4097);
  }
}

TEST(Findings, GridsAgainstTheNumberOfSms) {
  const auto look = [](int32_t blocks, int32_t threads) {
    AnalyzedRecording run;
    run.window(0, 10 * kMs);
    // 1024 threads of 32 registers: two blocks on an SM, 264 on the GPU.
    add_step(run, 0, {.work = run.gemm(DType::kBf16, 512, 4096, 4096), .config = run.config(blocks, threads)});
    return report_of(run);
  };
  const Report few = look(16, 128);
  EXPECT_NE(finding_of(few, "low-occupancy"), nullptr);
  EXPECT_EQ(finding_of(few, "wave-quantization"), nullptr);
  const Report ragged = look(300, 1024);  // 1.14 waves
  EXPECT_NE(finding_of(ragged, "wave-quantization"), nullptr);
  EXPECT_EQ(finding_of(ragged, "low-occupancy"), nullptr);
  EXPECT_EQ(finding_of(look(264, 1024), "wave-quantization"), nullptr);  // exactly one
  EXPECT_EQ(finding_of(look(520, 1024), "wave-quantization"), nullptr);  // 1.97: nearly full
}

// A product of many rows in fp32 is arithmetic: in bf16 it is not twice but up to sixteen times as fast.
TEST(Findings, TheBoundOfANarrowerTypeIsItsOwnRoof) {
  AnalyzedRecording run;
  const double flops = 2.0 * 4096 * 16384 * 8192;
  const int64_t at_roof_ns = static_cast<int64_t>(flops / 66.9e12 * 1e9);
  run.window(0, at_roof_ns * 2);
  const Row s = run.step(StageKind::kPrefill, 0, at_roof_ns * 2, 4096, 4096);
  run.gpu("sgemm", Category::kGemm, 0, at_roof_ns * 2, {.step = s, .work = run.gemm(DType::kFp32, 4096, 16384, 8192)});
  run.busy(0, at_roof_ns * 2);
  const Report report = report_of(run);
  const Finding* finding = finding_of(report, "dtype-wide");
  ASSERT_NE(finding, nullptr);
  EXPECT_NEAR(finding->bound->to, flops / *report.device->peak_of(DType::kBf16) * 1e3, 1e-3);
}

TEST(Findings, CopiesOfWeightsBeforeTheFirstStepAreMadeOnce) {
  for (const bool before : {true, false}) {
    AnalyzedRecording run;
    run.window(0, 20 * kMs);
    const Row s = run.step(StageKind::kDecode, 10 * kMs, 20 * kMs);
    run.gpu("Memcpy HtoD (Pageable -> Device)", Category::kCopy, before ? 0 : 10 * kMs, 8 * kMs,
            {.step = before ? kNoRow : s, .kind = GpuOpKind::kMemcpy});
    run.busy(before ? 0 : 10 * kMs, before ? 8 * kMs : 18 * kMs);
    EXPECT_EQ(finding_of(report_of(run), "pageable-copy") != nullptr, !before);
  }
}

TEST(Findings, ManyShortKernels) {
  AnalyzedRecording run;
  run.window(0, 10 * kMs);
  add_step(run, 0, {.kernel = "elementwise", .category = Category::kElementwise, .kernels = 2000, .kernel_ns = 2000});
  EXPECT_NE(finding_of(report_of(run), "small-kernels-unfused"), nullptr);
  AnalyzedRecording fused;
  fused.window(0, 10 * kMs);
  add_step(fused, 0,
           {.kernel = "elementwise", .category = Category::kElementwise, .kernels = 200, .kernel_ns = 20'000});
  EXPECT_EQ(finding_of(report_of(fused), "small-kernels-unfused"), nullptr);
}

TEST(Findings, ExpertsThatComputeAllTokens) {
  for (const int64_t experts : {8, 7}) {
    OneStep made(StageKind::kPrefill, 10 * kMs, 4096, 0);
    const auto product = [&](int64_t ns, int64_t n, int64_t k) {
      made.kernel(Category::kGemm, ns, made.run.gemm(DType::kBf16, 4096, n, k), "gemm");
    };
    product(10'000, 8, 2048);
    made.kernel(Category::kSampling, 10'000, kNoRow, "gatherTopK");
    for (int64_t e = 0; e < experts; ++e) {
      product(400'000, 5632, 2048);
      made.kernel(Category::kActivation, 100'000, kNoRow, "silu");
      product(200'000, 2048, 2816);
    }
    const Report report = report_of(made.run);
    const Finding* finding = finding_of(report, "dense-experts", "prefill");
    ASSERT_EQ(finding != nullptr, experts == 8);
    if (finding == nullptr) continue;
    EXPECT_NE(finding->title.find("(assumed)"), std::string::npos) << finding->title;
    EXPECT_DOUBLE_EQ(*finding->evidence[0].value, 8);
    ASSERT_TRUE(finding->bound);
    EXPECT_NEAR(finding->bound->from - finding->bound->to, 0.75 * 5.6, 0.05);
  }
}

TEST(Findings, WeightsThatAreConvertedBeforeEachProduct) {
  for (const int32_t blocks : {12288, 40}) {
    OneStep made(StageKind::kDecode, 10 * kMs, 8, 0);
    const WorkId work = made.run.gemm(DType::kBf16, 8, 3072, 2048);
    for (int layer = 0; layer < 10; ++layer) {
      made.kernel(Category::kCopy, 600'000, kNoRow, "unrolled_elementwise_kernel<direct_copy_kernel_cuda>", blocks);
      made.kernel(Category::kGemm, 400'000, work);
    }
    const Report report = report_of(made.run);
    const Finding* const finding = finding_of(report, "converted-weights", "decode");
    ASSERT_EQ(finding != nullptr, blocks == 12288);
    if (finding == nullptr) continue;
    EXPECT_DOUBLE_EQ(finding->evidence[0].value.value_or(0), 10);
    ASSERT_TRUE(finding->bound);
    EXPECT_NEAR(finding->bound->to / finding->bound->from, 0.4, 1e-6);
  }
}

TEST(Findings, ProductsOnRowsThatAreNotNew) {
  for (const int64_t rows : {12'000, 16}) {
    OneStep made(StageKind::kDecode, 10 * kMs, 8, 0);
    for (int layer = 0; layer < 10; ++layer)
      for (const int64_t m : {int64_t{8}, rows})
        made.kernel(Category::kGemm, 500'000, made.run.gemm(DType::kBf16, m, 2560, 1280));
    const Report report = report_of(made.run);
    const Finding* const finding = finding_of(report, "recomputation", "decode");
    ASSERT_EQ(finding != nullptr, rows == 12'000);
    if (finding == nullptr) continue;
    EXPECT_NE(finding->title.find("10 products a step run on up to 12,000 rows"), std::string::npos) << finding->title;
    ASSERT_TRUE(finding->bound);
    EXPECT_NEAR(finding->bound->to / finding->bound->from, 0.5, 1e-6);
  }
}

// Of rank 16 beside a matrix; or a layer that is narrow by design, without one.
TEST(Findings, AdaptersBesideTheirMatrix) {
  for (const bool matrix : {true, false}) {
    OneStep made(StageKind::kDecode, 10 * kMs, 16, 0);
    const auto product = [&](int64_t n, int64_t k) {
      made.kernel(Category::kGemm, 200'000, made.run.gemm(DType::kBf16, 16, n, k));
    };
    for (int layer = 0; layer < 10; ++layer) {
      product(matrix ? 2560 : 2048, 1536);
      product(16, 1536);
      product(2560, 16);
    }
    const Report report = report_of(made.run);
    const Finding* const finding = finding_of(report, "separate-adapters", "decode");
    ASSERT_EQ(finding != nullptr, matrix);
    if (finding == nullptr) continue;
    EXPECT_DOUBLE_EQ(finding->evidence[0].value.value_or(0), 10);
    EXPECT_DOUBLE_EQ(finding->evidence[3].value.value_or(0), 16) << "the rank";
    ASSERT_TRUE(finding->bound);
    EXPECT_NEAR(finding->bound->to / finding->bound->from, 0.6, 1e-6);
  }
}

// Eight products of 128 columns each, or three of 1,024 as many models have.
TEST(Findings, ProductsInPieces) {
  for (const int pieces : {8, 3}) {
    OneStep made(StageKind::kDecode, 10 * kMs, 16, 0);
    for (int layer = 0; layer < 10; ++layer) {
      for (int piece = 0; piece < pieces; ++piece)
        made.kernel(Category::kGemm, 60'000, made.run.gemm(DType::kBf16, 16, pieces == 8 ? 128 : 1024, 4096));
      made.kernel(Category::kNorm, 100'000);
    }
    const Report report = report_of(made.run);
    const Finding* const finding = finding_of(report, "products-in-pieces", "decode");
    ASSERT_EQ(finding != nullptr, pieces == 8);
    if (finding == nullptr) continue;
    EXPECT_NE(finding->title.find("in 8 pieces each"), std::string::npos) << finding->title;
    EXPECT_DOUBLE_EQ(finding->evidence[0].value.value_or(0), 10);
    EXPECT_DOUBLE_EQ(finding->evidence[1].value.value_or(0), 80);
  }
}

TEST(Findings, TheWholeTextForEachToken) {
  for (const int64_t rows : {4096, 8}) {
    OneStep made(StageKind::kDecode, 10 * kMs, 8, 0);
    for (int layer = 0; layer < 10; ++layer)
      made.kernel(Category::kGemm, 500'000, made.run.gemm(DType::kBf16, rows, 2560, 2560));
    made.run.trace.steps.sequences[0] = 8;
    made.run.trace.steps.gemm_rows[0] = rows;
    made.run.trace.steps.context[0] = rows / 8;
    const Report report = report_of(made.run);
    const Finding* const finding = finding_of(report, "no-kv-cache", "decode");
    ASSERT_EQ(finding != nullptr, rows == 4096);
    if (finding == nullptr) continue;
    EXPECT_NE(finding->title.find("up to 4,096 tokens"), std::string::npos) << finding->title;
  }
}

TEST(Findings, AllChancesSorted) {
  for (const int64_t sort_ns : {100'000, 2'000}) {
    OneStep made(StageKind::kDecode, 10 * kMs, 16, 0);
    made.kernel(Category::kGemm, 1'000'000, made.run.gemm(DType::kBf16, 16, 32000, 4096));
    for (int pass = 0; pass < 4; ++pass)
      made.kernel(Category::kSampling, sort_ns, kNoRow, "DeviceRadixSortOnesweepKernel<radix_sort>");
    made.kernel(Category::kElementwise, 200'000, kNoRow, "tensor_kernel_scan_innermost_dim");
    made.kernel(Category::kElementwise, 2'000);
    const Report report = report_of(made.run);
    const Finding* const finding = finding_of(report, "full-sort", "decode");
    ASSERT_EQ(finding != nullptr, sort_ns == 100'000);
    if (finding == nullptr) continue;
    EXPECT_DOUBLE_EQ(finding->evidence[0].value.value_or(0), 1);
    EXPECT_DOUBLE_EQ(finding->evidence[1].value.value_or(0), 0.3) << "one kernel of the sort stays";
    EXPECT_DOUBLE_EQ(finding->evidence[2].value.value_or(0), 0.2) << "the scan, not the short pass";
  }
}

TEST(Findings, DataThatIsMoved) {
  for (const int64_t each_ns : {400'000, 4'000}) {
    OneStep made(StageKind::kDecode, 10 * kMs, 16, 0);
    made.kernel(Category::kGemm, 2'000'000, made.run.gemm(DType::kBf16, 16, 32000, 4096));
    for (int i = 0; i < 5; ++i) made.kernel(Category::kEmbedding, each_ns, kNoRow, "index_elementwise_kernel<gather>");
    const Report report = report_of(made.run);
    const Finding* const finding = finding_of(report, "data-movement", "decode");
    ASSERT_EQ(finding != nullptr, each_ns == 400'000) << "what short ones cost is not their bytes";
    if (finding == nullptr) continue;
    EXPECT_DOUBLE_EQ(finding->evidence[0].value.value_or(0), 5);
    EXPECT_DOUBLE_EQ(finding->evidence[1].value.value_or(0), 2);
    EXPECT_NE(finding->evidence[2].metric.find("index_elementwise_kernel<gather>"), std::string::npos);
  }
}

TEST(Findings, CopiesFromPageableMemory) {
  for (const char* name : {"Memcpy HtoD (Pageable -> Device)", "Memcpy HtoD (Pinned -> Device)"}) {
    AnalyzedRecording run;
    run.window(0, 10 * kMs);
    const Row s = run.step(StageKind::kDecode, 0, 10 * kMs);
    run.gpu(name, Category::kCopy, 0, 4 * kMs, {.step = s, .kind = GpuOpKind::kMemcpy});
    run.busy(0, 4 * kMs);
    run.gap(IdleCause::kUnknown, 4 * kMs, 6 * kMs, s);
    const Report report = report_of(run);
    EXPECT_EQ(finding_of(report, "pageable-copy") != nullptr,
              std::string_view(name).find("Pageable") != std::string_view::npos);
    EXPECT_NE(finding_of(report, "copy-bound"), nullptr);
  }
}

TEST(Findings, CommunicationAndAllocator) {
  AnalyzedRecording run;
  run.window(0, 10 * kMs);
  add_step(run, 0,
           {.kernel = "ncclDevKernel_AllReduce", .category = Category::kCommunication, .cause = IdleCause::kAllocator});
  run.api("cudaMalloc", 9 * kMs, 500'000);
  const Report report = report_of(run);
  EXPECT_NE(finding_of(report, "comm-bound"), nullptr);
  const Finding* churn = finding_of(report, "allocator-churn");
  ASSERT_NE(churn, nullptr);
  EXPECT_EQ(churn->evidence[1].value, 1.0);
  EXPECT_EQ(stage_of(report, "decode")->bound, Bound::kComm);
}

TEST(Findings, LongContextsBindDecodeToTheCache) {
  AnalyzedRecording run;
  run.window(0, 10 * kMs);
  const Row work = run.work(WorkKind::kAttention, DType::kBf16, 4e8, 100e6);  // 100 MB in 30 us
  run.trace.works.kv_bytes[work] = 99e6;
  add_step(run, 0,
           {.kernel = "flash_fwd_splitkv",
            .category = Category::kAttention,
            .kernels = 330,
            .kernel_ns = 30'000,
            .work = work});
  const Report report = report_of(run);
  const Finding* finding = finding_of(report, "memory-bound-kv");
  ASSERT_NE(finding, nullptr);
  EXPECT_NEAR(finding->bound->to, 10 - 9.9 * 0.99 / 2, 1e-6);
  EXPECT_EQ(finding_of(report, "memory-bound-weights"), nullptr);
}

// 770 TFLOP/s in bf16 for 10 ms.
void add_prefill_at_peak(AnalyzedRecording& run) {
  run.window(0, 10 * kMs);
  const Row s = run.step(StageKind::kPrefill, 0, 10 * kMs, 8192, 8192);
  run.gpu("gemm", Category::kGemm, 0, 10 * kMs, {s, kNoRow, kNoRow, run.gemm(DType::kBf16, 8192, 28672, 16384)});
  run.busy(0, 10 * kMs);
}

TEST(Findings, PrefillAtThePeakIsComputeBound) {
  AnalyzedRecording run;
  add_prefill_at_peak(run);
  const Report report = report_of(run);
  const Finding* finding = finding_of(report, "compute-bound");
  ASSERT_NE(finding, nullptr);
  EXPECT_NEAR(*finding->evidence[0].value, 2.0 * 8192 * 28672 * 16384 / 0.01 / 989.4e12, 1e-6);
  EXPECT_EQ(finding->severity, FindingSeverity::kMinor);  // capped: there is nothing wrong with it
}

// One product of 7.7e12 FLOPs in `ms`, held against a part: the first advice is that of the bound, and no type is named
// that the part has no higher peak for.
TEST(Findings, TheBoundOfArithmeticIsThatOfItsFirstAdvice) {
  struct Case {
    const char* gpu;
    DType dtype;
    int64_t ms;
    double peak;            // TFLOP/s of the type it has
    double ratio;           // of the type that the bound assumes
    const char* advice[2];  // how the first two begin
  };
  const double flops = 2.0 * 8192 * 28672 * 16384;
  for (const Case& c : {Case{"h200-sxm",
                             DType::kBf16,
                             10,
                             989.4,
                             1978.9 / 989.4,
                             {"Compute its products in fp8 (peak 1,979 TFLOP/s, 2.0 times that of bf16)", "Do less"}},
                        Case{"b300", DType::kBf16, 10, 2250, 1, {"The GEMMs stay far", "Compute its products in fp8"}},
                        Case{"a100-sxm4-80gb",
                             DType::kBf16,
                             40,
                             312,
                             2,
                             {"Compute its products in int8 (peak 624 TOP/s, 2.0 times that of bf16)", "Do less"}},
                        Case{"v100-sxm2-32gb", DType::kFp16, 80, 125, 1, {"Do less", ""}}}) {
    AnalyzedRecording run;
    run.window(0, c.ms * kMs);
    const Row s = run.step(StageKind::kPrefill, 0, c.ms * kMs, 8192, 8192);
    run.gpu("gemm", Category::kGemm, 0, c.ms * kMs, {s, kNoRow, kNoRow, run.gemm(c.dtype, 8192, 28672, 16384)});
    run.busy(0, c.ms * kMs);
    AnalyzeOptions options;
    options.gpu = c.gpu;
    const Result<Report> report = analyze(run.trace, options);
    ASSERT_TRUE(report) << report.error().text();
    const Finding* finding = finding_of(*report, "compute-bound");
    ASSERT_NE(finding, nullptr) << c.gpu;
    const double at_peak_ms = flops / c.peak / 1e9;
    EXPECT_NEAR(finding->bound->to, at_peak_ms / c.ratio, 1e-3 * at_peak_ms) << c.gpu;
    int bounds = 0;
    for (const Evidence& evidence : finding->evidence)
      if (evidence.metric.find(": the bound") != std::string::npos) {
        ++bounds;
        EXPECT_NEAR(*evidence.value, finding->bound->to, 1e-9) << c.gpu;
      }
    EXPECT_EQ(bounds, 1) << c.gpu;
    for (size_t i = 0; i < 2 && *c.advice[i] != '\0'; ++i)
      EXPECT_EQ(finding->advice.at(i).rfind(c.advice[i], 0), 0U) << finding->advice.at(i);
  }
}

// A ceiling that products of the recording beat was measured on a slower machine, and the report says so.
TEST(Findings, WhatBeatsTheMeasuredCeilingIsSaid) {
  AnalyzedRecording run;
  add_prefill_at_peak(run);
  for (const double ceiling : {600.0, 760.0}) {
    AnalyzeOptions options;
    options.measured_given = true;
    options.measured.emplace_back();
    options.measured[0].name = "NVIDIA H200";
    options.measured[0].library_tflops["bf16"] = {ceiling, "", 0, 0, 0};
    options.measured[0].bandwidth_gbs["read"] = {4500, "", 0, 0, 0};
    const Result<Report> report = analyze(run.trace, options);
    ASSERT_TRUE(report) << report.error().text();
    std::string said;
    for (const DiagnosticRecord& row : report->diagnostics)
      if (name_of(row.key) == "above-ceiling") said = row.text;
    if (ceiling < 700)
      EXPECT_NE(said.find("bf16: 770 TFLOP/s, measured ceiling 600"), std::string::npos) << said;
    else
      EXPECT_EQ(said, "");
    // Shares of the peak stay those of the data sheet.
    EXPECT_NE(finding_of(*report, "compute-bound")->title.find("of the data sheet's peak"), std::string::npos);
  }
}

TEST(Findings, PythonFramesNameTokenisingAndCollection) {
  for (const char* frame :
       {"transformers/tokenization_utils.py(9): encode", "<built-in method gc.collect>", "model.py(1): f"}) {
    AnalyzedRecording run;
    run.window(0, 10 * kMs);
    const Row python = run.python(frame, 0, 4 * kMs);
    run.gap(IdleCause::kNoWork, 0, 4 * kMs, kNoRow, kNoRow, python);
    const Row s = run.step(StageKind::kPrefill, 4 * kMs, 10 * kMs);
    run.gpu("k", Category::kNorm, 4 * kMs, 6 * kMs, {s});
    run.busy(4 * kMs, 10 * kMs);
    const Report report = report_of(run);
    EXPECT_EQ(finding_of(report, "host-preprocessing") != nullptr,
              std::string_view(frame).find("tokeniz") != std::string_view::npos);
    EXPECT_EQ(finding_of(report, "python-gc") != nullptr,
              std::string_view(frame).find("gc.collect") != std::string_view::npos);
  }
}

TEST(Findings, OrderFollowsTheGain) {
  const Report report = report_of(eager_run());
  for (size_t i = 1; i < report.findings.size(); ++i) {
    const Finding &a = report.findings[i - 1], &b = report.findings[i];
    EXPECT_TRUE(a.share > b.share || (a.share == b.share && a.severity >= b.severity) || b.id == "first-call-cost")
        << a.id << " before " << b.id;
  }
  EXPECT_EQ(severity_of(0.30), FindingSeverity::kCritical);
  EXPECT_EQ(severity_of(0.10), FindingSeverity::kMajor);
  EXPECT_EQ(severity_of(0.03), FindingSeverity::kMinor);
  EXPECT_EQ(severity_of(0.029), FindingSeverity::kInfo);
}

}  // namespace
}  // namespace llmprof
