// What kernels would take with something changed, against closed forms of their shapes.
#include <gtest/gtest.h>

#include <cmath>

#include "analyze/dense_experts.h"
#include "analyze/kernel_scales.h"
#include "analyze/kernel_times.h"
#include "analyze/undisturbed.h"
#include "analyze_recording.h"

namespace llmprof {
namespace {

using replay::KernelChange;
using replay::kStays;
using replay::Scale;

struct Made : OneStep {
  explicit Made(StageKind kind, int64_t tokens = 1) : OneStep(kind, 100 * kMs, tokens, 1000) {}
  WorkId batched(int64_t batch, int64_t m, int64_t n, int64_t k) {
    const WorkId work = run.gemm(DType::kBf16, m, n, k);
    Works& works = run.trace.works;
    works.batch[work] = batch;
    works.flops[work] *= static_cast<double>(batch);
    works.bytes[work] *= static_cast<double>(batch);
    works.weight_bytes[work] = 0;
    return work;
  }
  // As NVML reads it throughout.
  void clock(float mhz) {
    for (int64_t time = 0; time <= 100 * kMs; time += kMs)
      TraceBuilder(run.trace).add<NvmlSamples>({.time_ns = time, .device = 0, .sm_clock_mhz = mhz});
  }
  template <class Ask>
  auto with_context(const Ask& ask) {
    const Result<Report> report = analyze(run.trace);
    EXPECT_TRUE(report && report->device);
    const AnalyzeOptions options;
    const RecorderCosts costs;
    const ReplayedSteps replayed;
    const Groups groups = group_trace(run.trace);
    const HostPace host_pace(run.trace);
    const UndisturbedTimes undisturbed(run.trace, groups, replayed, costs, host_pace);
    const Context context{run.trace, options, groups, &*report->device, costs, replayed, undisturbed, host_pace};
    return ask(context);
  }
  std::vector<int64_t> times(KernelChange change) {
    return with_context([&](const Context& context) { return kernel_times(context)[static_cast<size_t>(change)]; });
  }
  replay::KernelScales scales(Scale scale, const std::string& gpu = {}) {
    return with_context([&](const Context& context) { return kernel_scales(context, scale, gpu); });
  }
};

constexpr double kBytesPerNs = 4800 * kReachedOfBandwidth, kHalvesPerNs = 989.5e3 * kReachedOfPeak;

TEST(KernelTimes, AttentionWrittenOutReadsKeysAndValuesOnce) {
  Made made(StageKind::kDecode);
  const int64_t heads = 512, keys = 4096, size = 128;
  const WorkId weights = made.run.gemm(DType::kBf16, 16, 4096, 4096);
  made.kernel(Category::kGemm, 20'000, weights);
  const GpuOpId rotary = made.kernel(Category::kElementwise, 3'000);
  const GpuOpId upcast = made.kernel(Category::kElementwise, 400'000);
  const GpuOpId scores = made.kernel(Category::kGemm, 500'000, made.batched(heads, 1, keys, size));
  const GpuOpId softmax = made.kernel(Category::kSoftmax, 30'000);
  const GpuOpId result = made.kernel(Category::kGemm, 500'000, made.batched(heads, 1, size, keys));
  const GpuOpId out = made.kernel(Category::kGemm, 20'000, weights);
  const std::vector<int64_t> times = made.times(KernelChange::kFusedAttention);
  const double bytes = 2.0 * 2 * heads * (keys * size + size);  // keys and values, queries and results
  EXPECT_NEAR(static_cast<double>(times[scores]), bytes / kBytesPerNs, 0.01 * bytes / kBytesPerNs);
  EXPECT_EQ(times[softmax], 0);
  EXPECT_EQ(times[result], 0);
  EXPECT_EQ(times[upcast], 0) << "as long as a pass over all keys";
  EXPECT_EQ(times[rotary], kStays);
  EXPECT_EQ(times[out], kStays);
}

// cuBLAS clears a counter before some products.
TEST(KernelTimes, AttentionWrittenOutWithMemsetsBetween) {
  Made made(StageKind::kPrefill, 2048);
  const auto memset = [&] { made.kernel(Category::kCopy, 700, kNoRow, "Memset (Device)", 0, GpuOpKind::kMemset); };
  made.kernel(Category::kGemm, 200'000, made.run.gemm(DType::kBf16, 2048, 6144, 2048));
  memset();
  const GpuOpId scores = made.kernel(Category::kGemm, 500'000, made.batched(64, 2048, 2048, 128));
  const GpuOpId softmax = made.kernel(Category::kSoftmax, 800'000);
  memset();
  const GpuOpId result = made.kernel(Category::kGemm, 500'000, made.batched(64, 2048, 128, 2048));
  made.kernel(Category::kGemm, 200'000, made.run.gemm(DType::kBf16, 2048, 2048, 2048));
  const std::vector<int64_t> times = made.times(KernelChange::kFusedAttention);
  EXPECT_GT(times[scores], 0);
  EXPECT_EQ(times[softmax], 0);
  EXPECT_EQ(times[result], 0);
}

// A mask that is put out of place copies the scores first.
TEST(KernelTimes, AttentionWrittenOutWithACopyOfItsScores) {
  for (const CopyPath path : {CopyPath::kOnDevice, CopyPath::kDeviceToHost}) {
    Made made(StageKind::kPrefill, 2048);
    made.kernel(Category::kGemm, 200'000, made.run.gemm(DType::kBf16, 2048, 6144, 2048));
    const GpuOpId scores = made.kernel(Category::kGemm, 500'000, made.batched(64, 2048, 2048, 128));
    const GpuOpId copy = made.kernel(Category::kCopy, 250'000, kNoRow, "Memcpy", 0, GpuOpKind::kMemcpy);
    made.run.trace.gpu_ops.path[copy] = path;
    made.kernel(Category::kSoftmax, 800'000);
    made.kernel(Category::kGemm, 500'000, made.batched(64, 2048, 128, 2048));
    made.kernel(Category::kGemm, 200'000, made.run.gemm(DType::kBf16, 2048, 2048, 2048));
    const std::vector<int64_t> times = made.times(KernelChange::kFusedAttention);
    const bool written_out = path == CopyPath::kOnDevice;
    EXPECT_EQ(times[copy], written_out ? 0 : kStays);
    EXPECT_EQ(times[scores] > 0, written_out);
  }
}

// Weights of 3072 x 2048 that are stored otherwise: passes of 512 numbers a block over all of them, before the product.
TEST(KernelTimes, ConvertedWeightsAreReady) {
  constexpr std::string_view kCast = "unrolled_elementwise_kernel<direct_copy_kernel_cuda>",
                             kScale = "elementwise_kernel<128, 4, MulFunctor<c10::BFloat16>>",
                             kWide = "vectorized_elementwise_kernel<4, MulFunctor<c10::BFloat16>>";
  Made made(StageKind::kDecode, 8);
  const WorkId work = made.run.gemm(DType::kBf16, 8, 3072, 2048);
  const GpuOpId norm = made.kernel(Category::kNorm, 5'000, kNoRow, "vectorized_layer_norm_kernel", 8);
  const GpuOpId cast = made.kernel(Category::kCopy, 18'000, kNoRow, kCast, 12288);
  const GpuOpId scale = made.kernel(Category::kElementwise, 16'000, kNoRow, kScale, 12288);
  const GpuOpId product = made.kernel(Category::kGemm, 5'000, work);
  const GpuOpId rotary = made.kernel(Category::kElementwise, 3'000, kNoRow, kScale, 40);
  const GpuOpId wide = made.kernel(Category::kElementwise, 16'000, kNoRow, kWide, 6144);
  const GpuOpId named = made.kernel(Category::kOther, 16'000, kNoRow, "kDequantizeBlockwise<__nv_bfloat16, 512>", 77);
  made.kernel(Category::kGemm, 5'000, work);
  const std::vector<int64_t> times = made.times(KernelChange::kReadyWeights);
  for (const GpuOpId op : {cast, scale, wide, named}) EXPECT_EQ(times[op], 0) << op;
  for (const GpuOpId op : {norm, product, rotary}) EXPECT_EQ(times[op], kStays) << op;

  // As many tokens as the weights have rows: a pass over the product's input has as many numbers.
  Made prompt(StageKind::kPrefill, 3072);
  const GpuOpId either = prompt.kernel(Category::kElementwise, 16'000, kNoRow, kScale, 12288);
  prompt.kernel(Category::kGemm, 90'000, prompt.run.gemm(DType::kBf16, 3072, 3072, 2048));
  EXPECT_EQ(prompt.times(KernelChange::kReadyWeights)[either], kStays);
}

// Eight new tokens, and keys and values of 12,000 frames made anew in each of two layers; or an encoder of two layers.
TEST(KernelTimes, ProductsOfWhatIsNotNewAreKept) {
  for (const bool encoder : {false, true}) {
    Made made(StageKind::kDecode, 8);
    std::vector<GpuOpId> wide, usual;
    const auto product = [&](std::vector<GpuOpId>& to, int64_t m, int64_t n, int64_t k) {
      to.push_back(made.kernel(Category::kGemm, m > 8 ? 100'000 : 5'000, made.run.gemm(DType::kBf16, m, n, k)));
    };
    for (int layer = 0; layer < 2; ++layer) {
      for (const int64_t n : {3840, 1280, 5120}) product(usual, 8, n, 1280);
      product(wide, 12'000, 2560, 1280);
      if (encoder) product(wide, 12'000, 1280, 5120);
    }
    const std::vector<int64_t> times = made.times(KernelChange::kProductsKept);
    for (const GpuOpId op : wide) EXPECT_EQ(times[op], encoder ? kStays : 0);
    for (const GpuOpId op : usual) EXPECT_EQ(times[op], kStays);
  }
}

// An encoder of 1500 places runs before each pass of its decoder, whose keys and values of them are kept: nothing reads
// what it gives. Where products on its rows follow, it is read.
TEST(KernelTimes, AnEncoderThatNothingReadsIsKept) {
  for (const bool read : {false, true}) {
    Made made(StageKind::kDecode, 4);
    std::vector<GpuOpId> gone, stays;
    const auto product = [&](std::vector<GpuOpId>& to, int64_t m, int64_t n, int64_t k) {
      to.push_back(made.kernel(Category::kGemm, 5'000, made.run.gemm(DType::kBf16, m, n, k)));
    };
    gone.push_back(made.kernel(Category::kConvolution, 9'000));
    for (int layer = 0; layer < 4; ++layer) {
      product(gone, 1500, 5120, 1280);
      gone.push_back(made.kernel(Category::kActivation, 3'000));
      product(gone, 1500, 1280, 5120);
    }
    stays.push_back(made.kernel(Category::kNorm, 2'000));
    for (int layer = 0; layer < 5; ++layer) {
      product(stays, 4, 5120, 1280);
      product(stays, 4, 1280, 5120);
      if (read) product(stays, 1500, 1280, 1280);
    }
    product(stays, 4, 51865, 1280);
    const std::vector<int64_t> times = made.times(KernelChange::kProductsKept);
    for (const GpuOpId op : gone) EXPECT_EQ(times[op], read ? kStays : 0) << op;
    for (const GpuOpId op : stays) EXPECT_EQ(times[op], kStays) << op;
  }
}

// The residual's addition stays, whether or not the adapter's result is scaled first.
TEST(KernelTimes, AdaptersAreMerged) {
  constexpr std::string_view kScale = "vectorized_elementwise_kernel<8, AUnaryFunctor<MulFunctor<float>>>",
                             kAdd = "vectorized_elementwise_kernel<8, CUDAFunctor_add<c10::BFloat16>>";
  for (const bool scaled : {true, false}) {
    Made made(StageKind::kDecode, 16);
    std::vector<GpuOpId> gone, stays;
    const auto product = [&](std::vector<GpuOpId>& to, int64_t n, int64_t k) {
      to.push_back(made.kernel(Category::kGemm, 5'000, made.run.gemm(DType::kBf16, 16, n, k)));
    };
    product(stays, 1536, 4096);
    product(gone, 16, 4096);
    gone.push_back(made.kernel(Category::kGemm, 1'500, kNoRow, "cublasLt::splitKreduce_kernel<32, 16>"));
    product(gone, 1536, 16);
    if (scaled) gone.push_back(made.kernel(Category::kElementwise, 1'500, kNoRow, kScale));
    gone.push_back(made.kernel(Category::kElementwise, 1'500, kNoRow, kAdd));
    stays.push_back(made.kernel(Category::kElementwise, 1'500, kNoRow, kAdd));
    product(stays, 8192, 1536);
    gone.push_back(made.kernel(Category::kOther, 5'000, kNoRow, "_lora_shrink_kernel"));
    const std::vector<int64_t> times = made.times(KernelChange::kMergedAdapters);
    for (const GpuOpId op : gone) EXPECT_EQ(times[op], 0) << op;
    for (const GpuOpId op : stays) EXPECT_EQ(times[op], kStays) << op;
  }
}

// An adapter of rank 16 that is put into the weights of 1536 x 4096 before their product; on a prompt of 1536 tokens
// the same product is one with weights of its own.
TEST(KernelTimes, WeightsThatAdaptersRewriteAreKept) {
  for (const int64_t rows : {8, 1536}) {
    Made made(rows == 8 ? StageKind::kDecode : StageKind::kPrefill, rows);
    std::vector<GpuOpId> gone, stays;
    gone.push_back(made.kernel(Category::kOther, 1'000, kNoRow, "Memset (Device)", 0, GpuOpKind::kMemset));
    gone.push_back(made.kernel(Category::kGemm, 20'000, made.run.gemm(DType::kBf16, 1536, 4096, 16)));
    gone.push_back(made.kernel(Category::kElementwise, 9'000, kNoRow, "vectorized_elementwise_kernel<8, add>", 6144));
    stays.push_back(made.kernel(Category::kElementwise, 2'000, kNoRow, "vectorized_elementwise_kernel<8, add>", 8));
    stays.push_back(made.kernel(Category::kGemm, 9'000, made.run.gemm(DType::kBf16, rows, 1536, 4096)));
    stays.push_back(made.kernel(Category::kGemm, 9'000, made.run.gemm(DType::kBf16, rows, 8192, 1536)));
    const std::vector<int64_t> times = made.times(KernelChange::kWeightsKept);
    for (const GpuOpId op : gone) EXPECT_EQ(times[op], rows == 8 ? 0 : kStays) << op;
    for (const GpuOpId op : stays) EXPECT_EQ(times[op], kStays) << op;
  }
}

// Two halves of a batch of 16, each on a stream and at the same time, so that each takes twice as long as alone. The
// products are limited by memory: on all rows they read a little more than on half of them.
TEST(KernelTimes, WeightsOfTwoStreamsAreReadOnce) {
  for (const bool same : {true, false}) {
    Made made(StageKind::kDecode, 16);
    Trace& trace = made.run.trace;
    TraceBuilder builder(trace);
    const StreamId other = made.run.add_stream(0);
    const auto call = [&](uint64_t weights) {
      return builder.add<LibraryCalls>({.thread = 0, .kind = WorkKind::kGemm, .batch = 1, .weights = weights});
    };
    std::vector<GpuOpId> products, passes, gone;
    int64_t at = 0;
    const auto run = [&](std::vector<GpuOpId>& first, Category category, int64_t ns, WorkId work, uint64_t weights) {
      for (const StreamId stream : {StreamId(0), other}) {
        const GpuOpId op =
            made.run.gpu("kernel", category, at, ns, {.step = made.step, .work = work, .stream = stream});
        const bool second = stream == other;
        if (weights != 0) trace.gpu_links.library_call[op] = call(weights + (second && !same ? 4096 * 4096 * 2 : 0));
        (second ? gone : first).push_back(op);
      }
      made.run.busy(at, at + ns);
      at += ns + 1000;
    };
    for (uint64_t layer = 0; layer < 6; ++layer) {
      run(products, Category::kGemm, 20'000, made.run.gemm(DType::kBf16, 8, 4096, 4096),
          0x7f0000000000 + (layer << 32));
      run(passes, Category::kNorm, 8'000, kNoRow, 0);
    }
    const std::vector<int64_t> times = made.times(KernelChange::kOnePass);
    if (!same) {
      for (const int64_t ns : times) EXPECT_EQ(ns, kStays);
      continue;
    }
    const double weights = 2.0 * 4096 * 4096, rows = 2.0 * 8 * (4096 + 4096);
    for (const GpuOpId op : products)
      EXPECT_NEAR(static_cast<double>(times[op]), 10'000 * (weights + 2 * rows) / (weights + rows), 1) << op;
    for (size_t i = 0; i + 1 < passes.size(); ++i) EXPECT_EQ(times[passes[i]], 4'000);
    EXPECT_EQ(times[passes.back()], kStays) << "behind the last product";
    for (const GpuOpId op : gone) EXPECT_EQ(times[op], 0) << op;
  }
}

// A product for each of sixteen heads; the kernel that puts results together goes with them.
TEST(KernelTimes, PiecesOfAProductAreOne) {
  Made made(StageKind::kDecode, 8);
  const GpuOpId norm = made.kernel(Category::kNorm, 5'000);
  std::vector<GpuOpId> pieces;
  for (int head = 0; head < 16; ++head)
    pieces.push_back(made.kernel(Category::kGemm, 5'000, made.run.gemm(DType::kBf16, 8, 1024, 8192)));
  const GpuOpId sum = made.kernel(Category::kGemm, 1'500, kNoRow, "cublasLt::splitKreduce_kernel<32, 16>");
  const GpuOpId concatenation = made.kernel(Category::kCopy, 3'000, kNoRow, "CatArrayBatchedCopy<float, 4>");
  const GpuOpId wide = made.kernel(Category::kGemm, 30'000, made.run.gemm(DType::kBf16, 8, 16384, 8192));
  const std::vector<int64_t> times = made.times(KernelChange::kJoinedProducts);
  const double weights = 2.0 * 16 * 1024 * 8192;
  EXPECT_NEAR(static_cast<double>(times[pieces[0]]), weights / kBytesPerNs, 0.01 * weights / kBytesPerNs);
  for (size_t i = 1; i < pieces.size(); ++i) EXPECT_EQ(times[pieces[i]], 0);
  EXPECT_EQ(times[sum], 0);
  EXPECT_EQ(times[concatenation], 0);
  for (const GpuOpId op : {norm, wide}) EXPECT_EQ(times[op], kStays);
}

// Of 8 x 512 tokens eight are new: products read their weights, passes shrink, the output layer has the new ones
// already.
TEST(KernelTimes, WithACacheTheNewestTokensAlone) {
  Made made(StageKind::kDecode, 8);
  Steps& steps = made.run.trace.steps;
  steps.sequences[0] = 8;
  steps.context[0] = 512;
  steps.gemm_rows[0] = 4096;
  const GpuOpId product = made.kernel(Category::kGemm, 900'000, made.run.gemm(DType::kBf16, 4096, 4096, 4096));
  const GpuOpId pass = made.kernel(Category::kElementwise, 1'024'000);
  const GpuOpId small = made.kernel(Category::kElementwise, 1'500);
  const GpuOpId output = made.kernel(Category::kGemm, 80'000, made.run.gemm(DType::kBf16, 8, 32000, 4096));
  const std::vector<int64_t> times = made.times(KernelChange::kCachedKeys);
  const double weights = 2.0 * 4096 * 4096;
  EXPECT_NEAR(static_cast<double>(times[product]), weights / kBytesPerNs, 0.01 * weights / kBytesPerNs);
  EXPECT_EQ(times[pass], 2'000);
  for (const GpuOpId op : {small, output}) EXPECT_EQ(times[op], kStays) << op;
  steps.context[0] = 300;
  EXPECT_EQ(made.times(KernelChange::kCachedKeys)[pass], kStays) << "other rows than those of the text";
}

TEST(KernelTimes, TheLargestChancesInsteadOfASort) {
  Made made(StageKind::kDecode, 8);
  made.kernel(Category::kGemm, 50'000, made.run.gemm(DType::kBf16, 8, 32000, 2048));
  const GpuOpId before = made.kernel(Category::kSoftmax, 20'000);
  const GpuOpId first = made.kernel(Category::kSampling, 40'000, kNoRow, "radix_sort::DeviceRadixSortHistogramKernel");
  const GpuOpId longest = made.kernel(Category::kSampling, 90'000, kNoRow, "radix_sort::DeviceRadixSortOnesweepKernel");
  const GpuOpId last = made.kernel(Category::kOther, 80'000, kNoRow, "sort_postprocess_kernel<float>");
  const GpuOpId scan = made.kernel(Category::kElementwise, 200'000, kNoRow, "tensor_kernel_scan_innermost_dim");
  const GpuOpId small = made.kernel(Category::kElementwise, 1'500);
  const std::vector<int64_t> times = made.times(KernelChange::kLargestOnly);
  for (const GpuOpId op : {before, longest, small}) EXPECT_EQ(times[op], kStays) << op;
  for (const GpuOpId op : {first, last}) EXPECT_EQ(times[op], 0) << op;
  EXPECT_EQ(times[scan], kLeastKernelNs);
}

// Copies to the host and weights that are converted are other findings' matter.
TEST(KernelTimes, WhatOnlyMovesDataIsGone) {
  Made made(StageKind::kDecode, 8);
  const GpuOpId gather = made.kernel(Category::kEmbedding, 300'000, kNoRow, "index_elementwise_kernel<gather>");
  const GpuOpId back =
      made.kernel(Category::kCopy, 200'000, kNoRow, "Memcpy DtoD (Device -> Device)", 0, GpuOpKind::kMemcpy);
  const GpuOpId out =
      made.kernel(Category::kCopy, 200'000, kNoRow, "Memcpy DtoH (Device -> Pinned)", 0, GpuOpKind::kMemcpy);
  const GpuOpId small = made.kernel(Category::kCopy, 2'000);
  const GpuOpId append = made.kernel(Category::kCopy, 50'000, kNoRow, "CatArrayBatchedCopy<float, 4>");
  const GpuOpId cast =
      made.kernel(Category::kCopy, 18'000, kNoRow, "unrolled_elementwise_kernel<direct_copy_kernel_cuda>", 12288);
  made.kernel(Category::kGemm, 5'000, made.run.gemm(DType::kBf16, 8, 3072, 2048));
  const std::vector<int64_t> times = made.times(KernelChange::kNoMoves);
  for (const GpuOpId op : {gather, back}) EXPECT_EQ(times[op], 0) << op;
  for (const GpuOpId op : {out, small, append, cast}) EXPECT_EQ(times[op], kStays) << op;
}

TEST(KernelTimes, ASoftmaxWithoutProductsIsSampling) {
  Made made(StageKind::kDecode);
  made.kernel(Category::kGemm, 20'000, made.run.gemm(DType::kBf16, 16, 32000, 4096));
  const GpuOpId softmax = made.kernel(Category::kSoftmax, 30'000);
  EXPECT_EQ(made.times(KernelChange::kFusedAttention)[softmax], kStays);
}

TEST(KernelTimes, AlignedProductsComeNearTheirRoof) {
  Made made(StageKind::kPrefill, 4096);
  const GpuOpId odd = made.kernel(Category::kGemm, 3'000'000, made.run.gemm(DType::kBf16, 4096, 5461, 4096));
  const GpuOpId even = made.kernel(Category::kGemm, 300'000, made.run.gemm(DType::kBf16, 4096, 5464, 4096));
  const std::vector<int64_t> times = made.times(KernelChange::kAligned);
  const double ns = 2.0 * 4096 * 5461 * 4096 / kHalvesPerNs;
  EXPECT_NEAR(static_cast<double>(times[odd]), ns, 0.01 * ns);
  EXPECT_EQ(times[even], kStays);
}

TEST(KernelTimes, WideProductsInBf16) {
  Made made(StageKind::kPrefill, 4096);
  const GpuOpId wide = made.kernel(Category::kGemm, 3'000'000, made.run.gemm(DType::kFp32, 4096, 4096, 4096));
  const GpuOpId pass = made.kernel(Category::kElementwise, 40'000), little = made.kernel(Category::kElementwise, 3'000);
  const std::vector<int64_t> times = made.times(KernelChange::kHalfPrecision);
  const double ns = 2.0 * 4096 * 4096 * 4096 / kHalvesPerNs;
  EXPECT_NEAR(static_cast<double>(times[wide]), ns, 0.01 * ns);
  EXPECT_EQ(times[pass], 20'000) << "half the bytes";
  EXPECT_EQ(times[little], kStays) << "its fixed cost";
  Made narrow(StageKind::kPrefill, 4096);
  const GpuOpId bf16 = narrow.kernel(Category::kGemm, 300'000, narrow.run.gemm(DType::kBf16, 4096, 4096, 4096));
  const GpuOpId other = narrow.kernel(Category::kElementwise, 40'000);
  const std::vector<int64_t> stay = narrow.times(KernelChange::kHalfPrecision);
  EXPECT_EQ(stay[bf16], kStays);
  EXPECT_EQ(stay[other], kStays);
  // One wide product among narrow ones, however long it takes, says nothing about passes between the others.
  Made mixed(StageKind::kPrefill, 4096);
  const GpuOpId head = mixed.kernel(Category::kGemm, 9'000'000, mixed.run.gemm(DType::kFp32, 4096, 32000, 4096));
  for (int i = 0; i < 2; ++i) mixed.kernel(Category::kGemm, 300'000, mixed.run.gemm(DType::kBf16, 4096, 4096, 4096));
  const GpuOpId between = mixed.kernel(Category::kElementwise, 40'000);
  const std::vector<int64_t> one = mixed.times(KernelChange::kHalfPrecision);
  EXPECT_LT(one[head], 3'000'000);
  EXPECT_EQ(one[between], kStays);
}

TEST(KernelTimes, LogitsOfTheLastPlaceAlone) {
  Made made(StageKind::kPrefill, 1024);
  const GpuOpId product = made.kernel(Category::kGemm, 1'000'000, made.run.gemm(DType::kBf16, 1024, 32000, 2048));
  const GpuOpId sort = made.kernel(Category::kElementwise, 2'000'000),
                step = made.kernel(Category::kElementwise, 3'000);
  const std::vector<int64_t> times = made.times(KernelChange::kLastLogits);
  const double weights_ns = 2.0 * 32000 * 2048 / kBytesPerNs;
  EXPECT_NEAR(static_cast<double>(times[product]), weights_ns, 0.01 * weights_ns);
  EXPECT_EQ(times[sort], 2000) << "a 1024th, and the least that a kernel takes";
  EXPECT_EQ(times[step], kStays);
}

// Gate and up as one product are as wide as a small vocabulary, in each layer (Qwen2.5-7B).
TEST(KernelTimes, GateAndUpOfEachLayerAreNoLogits) {
  for (const bool head : {true, false}) {
    Made made(StageKind::kPrefill, 1024);
    const WorkId gate_up = made.run.gemm(DType::kBf16, 1024, 37888, 3584);
    std::vector<GpuOpId> layers;
    for (int layer = 0; layer < 28; ++layer) layers.push_back(made.kernel(Category::kGemm, 500'000, gate_up));
    const GpuOpId last =
        head ? made.kernel(Category::kGemm, 900'000, made.run.gemm(DType::kBf16, 1024, 152064, 3584)) : kNoRow;
    const std::vector<int64_t> times = made.times(KernelChange::kLastLogits);
    for (const GpuOpId layer : layers) EXPECT_EQ(times[layer], kStays);
    EXPECT_TRUE(!head || times[last] < 900'000);
    EXPECT_EQ(finding_of(*analyze(made.run.trace), "logits-all-tokens") != nullptr, head);
  }
}

TEST(KernelTimes, CachesAreConcatenatedInDecodeStepsAlone) {
  Made decode(StageKind::kDecode), prefill(StageKind::kPrefill, 512);
  const std::string_view name = "void at::native::CatArrayBatchedCopy<...>";
  const GpuOpId grows = decode.kernel(Category::kCopy, 700'000, kNoRow, name);
  const GpuOpId once = prefill.kernel(Category::kCopy, 700'000, kNoRow, name);
  EXPECT_EQ(decode.times(KernelChange::kCacheInPlace)[grows], 2000);
  EXPECT_EQ(prefill.times(KernelChange::kCacheInPlace)[once], kStays);
}

TEST(KernelTimes, WeightsOfOneByteAreReadInHalfTheTime) {
  Made made(StageKind::kDecode);
  const WorkId work = made.run.gemm(DType::kBf16, 1, 8192, 8192);
  const GpuOpId op = made.kernel(Category::kGemm, 40'000, work);
  EXPECT_NEAR(static_cast<double>(made.times(KernelChange::kFp8Weights)[op]), 20'000, 20);
  EXPECT_NEAR(static_cast<double>(made.times(KernelChange::kRoofline)[op]), 2.0 * 8192 * 8192 / 4800, 20);
}

// A layer with a router and experts: gate and up as one product, what they make, down, and the sum over experts.
struct Layer {
  int64_t rows = 8192, outputs = 8, experts = 8;
  const char* picks = "void at::native::sbtopk::gatherTopK<float>";
  bool attention = false;       // between the experts
  bool unknown = false;         // shapes of one of them
  int64_t rows_of_others = -1;  // but the first

  static constexpr int64_t kHidden = 2048, kInner = 2816, kFirstNs = 250'000, kDownNs = 120'000, kPassNs = 40'000;
  GpuOpId first_product = 0, pass = 0, last_pass = 0, residual = 0, little = 0;

  void add(Made& made) {
    made.kernel(Category::kGemm, 90'000, made.run.gemm(DType::kBf16, rows, kHidden, kHidden));
    made.kernel(Category::kGemm, 10'000, made.run.gemm(DType::kBf16, rows, outputs, kHidden));
    made.kernel(Category::kSoftmax, 2'000);
    if (picks != nullptr) made.kernel(Category::kSampling, 20'000, kNoRow, picks);
    for (int64_t e = 0; e < experts; ++e) {
      const int64_t m = e > 0 && rows_of_others >= 0 ? rows_of_others : rows;
      const GpuOpId product =
          made.kernel(Category::kGemm, kFirstNs, made.run.gemm(DType::kBf16, m, 2 * kInner, kHidden));
      if (e == 0) first_product = product;
      pass = made.kernel(Category::kActivation, kPassNs, kNoRow, "silu");
      if (attention && e == 3) made.kernel(Category::kAttention, 100'000);
      const WorkId down = made.run.gemm(DType::kBf16, m, kHidden, kInner);
      made.kernel(Category::kGemm, kDownNs, unknown && e == 3 ? kNoRow : down, "down");
      last_pass = made.kernel(Category::kElementwise, kPassNs, kNoRow, "weighted");
      if (e + 1 < experts) little = made.kernel(Category::kElementwise, 2'000, kNoRow, "mask");
    }
    residual = made.kernel(Category::kElementwise, 30'000, kNoRow, "residual");
  }
};

TEST(KernelTimes, ExpertsThatComputeAllTokensWouldHaveThoseThatChoseThem) {
  Made made(StageKind::kPrefill, 8192);
  Layer layer;
  layer.add(made);
  const std::vector<int64_t> times = made.times(KernelChange::kRoutedExperts);
  // Two of eight; and tokens are gathered twice, what is made of them is written and read, and the sum is written.
  const double moved = 7 * 2.0 * 8192 * Layer::kHidden / kBytesPerNs / 16;
  EXPECT_NEAR(static_cast<double>(times[layer.first_product]), Layer::kFirstNs / 4.0 + moved, 1);
  EXPECT_EQ(times[layer.pass], Layer::kPassNs / 4);
  EXPECT_EQ(times[layer.last_pass], Layer::kPassNs / 4) << "as behind the other experts";
  EXPECT_EQ(times[layer.little], kStays);
  EXPECT_EQ(times[layer.residual], kStays);
  EXPECT_EQ(times[0], kStays);
}

TEST(KernelTimes, ExpertsOfFewTokensReadTheWeightsOfThoseChosen) {
  Made made(StageKind::kDecode);
  Layer layer{.rows = 4};
  layer.add(made);
  const double moved = 7 * 2.0 * 4 * Layer::kHidden / kBytesPerNs / 16;
  const double weights = 2.0 * 2 * Layer::kInner * Layer::kHidden / kBytesPerNs, touched = 1 - std::pow(0.75, 4);
  EXPECT_NEAR(static_cast<double>(made.times(KernelChange::kRoutedExperts)[layer.first_product]),
              std::max(touched * weights, Layer::kFirstNs / 4.0) + moved, 1);
}

TEST(KernelTimes, ExpertsAreDenseOnlyWhereAllOfTheRoutersOutputsComputeAllItsRows) {
  const auto found = [](Layer layer) {
    Made made(StageKind::kPrefill, 8192);
    layer.add(made);
    return made.with_context([](const Context& context) { return dense_experts(context).size(); });
  };
  EXPECT_EQ(found({}), 1U);
  EXPECT_EQ(found({.experts = 9}), 1U) << "one is shared by all tokens";
  EXPECT_EQ(found({.outputs = 3, .experts = 3}), 0U) << "too few to save much";
  EXPECT_EQ(found({.experts = 7}), 0U);
  EXPECT_EQ(found({.experts = 16}), 0U);
  EXPECT_EQ(found({.rows_of_others = 2048}), 0U) << "routed";
  EXPECT_EQ(found({.picks = nullptr}), 0U) << "a soft mixture means all of them";
  EXPECT_EQ(found({.attention = true}), 0U) << "layers, not experts";
  EXPECT_EQ(found({.unknown = true}), 0U);
}

TEST(KernelTimes, ExpertsInOneProductOfSoManyMatrices) {
  for (const int64_t matrices : {int64_t{32}, int64_t{16}}) {
    Made made(StageKind::kPrefill, 4096);
    made.kernel(Category::kGemm, 10'000, made.run.gemm(DType::kBf16, 4096, 32, 2048));
    made.kernel(Category::kSampling, 20'000, kNoRow, "gatherTopK");
    const GpuOpId up = made.kernel(Category::kGemm, 9'000'000, made.batched(matrices, 4096, 5632, 2048));
    const GpuOpId pass = made.kernel(Category::kActivation, 900'000);
    made.kernel(Category::kGemm, 4'500'000, made.batched(matrices, 4096, 2048, 2816));
    const std::vector<int64_t> times = made.times(KernelChange::kRoutedExperts);
    EXPECT_EQ(times[pass], matrices == 32 ? 900'000 / 16 : kStays);
    EXPECT_EQ(times[up] < 9'000'000 / 8 && times[up] > 9'000'000 / 16, matrices == 32);
  }
}

TEST(KernelTimes, HowManyExpertsATokenHasIsReadWhereItIsRecorded) {
  const auto of = [](const char* picks, bool asked) {
    Made made(StageKind::kPrefill, 8192);
    Layer layer{.picks = picks};
    layer.add(made);
    if (asked) {
      const OpId op = made.run.op("aten::topk", 0, 1000);
      made.run.trace.ops.signature[op] = TraceBuilder(made.run.trace)
                                             .signature({.dims = "[[8192,8],[],[],[],[]]",
                                                         .types = R"(["float","Scalar","Scalar","Scalar","Scalar"])",
                                                         .concrete = R"(["","3","-1","True","True"])"});
      made.run.trace.gpu_links.op[3] = op;
    }
    return made.with_context([](const Context& context) { return dense_experts(context).at(0); });
  };
  const DenseExperts usual = of("gatherTopK", false), asked = of("gatherTopK", true), one = of("ArgMaxOps", false);
  EXPECT_EQ(usual.chosen, 2);
  EXPECT_FALSE(usual.chosen_known);
  EXPECT_EQ(asked.chosen, 3);
  EXPECT_TRUE(asked.chosen_known);
  EXPECT_EQ(one.chosen, 1);
  EXPECT_TRUE(one.chosen_known);
}

// A norm as PyTorch runs it when it is written out.
struct NormPasses {
  bool widens = true, weight = true, adds_one = false, narrows_last = false;

  std::vector<GpuOpId> add(Made& made) const {
    std::vector<GpuOpId> out;
    const auto kernel = [&](Category category, int64_t ns, std::string_view name) {
      out.push_back(made.kernel(category, ns, kNoRow, name));
    };
    if (widens) kernel(Category::kCopy, 54'000, "unrolled_elementwise_kernel<direct_copy_kernel_cuda>");
    kernel(Category::kNorm, 47'000, "vectorized_elementwise_kernel<4, pow_tensor_scalar_kernel_impl>");
    kernel(Category::kNorm, 27'000, "reduce_kernel<512, 1, ReduceOp<float, MeanOps<float>>>");
    kernel(Category::kElementwise, 1'200, "vectorized_elementwise_kernel<4, CUDAFunctorOnSelf_add<float>>");
    kernel(Category::kNorm, 1'200, "vectorized_elementwise_kernel<4, rsqrt_kernel_cuda>");
    kernel(Category::kElementwise, 58'000, "elementwise_kernel<BinaryFunctor<MulFunctor<float>>>");
    if (widens && !narrows_last) kernel(Category::kCopy, 33'000, "vectorized_elementwise_kernel<bfloat16_copy_kernel>");
    if (adds_one) {
      kernel(Category::kCopy, 1'200, "vectorized_elementwise_kernel<direct_copy_kernel_cuda>");
      kernel(Category::kElementwise, 1'200, "vectorized_elementwise_kernel<4, CUDAFunctorOnSelf_add<float>>");
    }
    if (weight) kernel(Category::kElementwise, 47'000, "elementwise_kernel<BinaryFunctor<MulFunctor<float>>>");
    if (widens && narrows_last) kernel(Category::kCopy, 33'000, "vectorized_elementwise_kernel<bfloat16_copy_kernel>");
    return out;
  }
};

TEST(KernelTimes, ANormWrittenOutIsOnePass) {
  for (const NormPasses& passes :
       {NormPasses{}, NormPasses{.adds_one = true, .narrows_last = true}, NormPasses{.narrows_last = true},
        NormPasses{.weight = false}, NormPasses{.widens = false}}) {
    Made made(StageKind::kPrefill, 8192);
    made.kernel(Category::kGemm, 90'000, made.run.gemm(DType::kBf16, 8192, 2048, 2048));
    const std::vector<GpuOpId> first = passes.add(made);
    const GpuOpId residual = made.kernel(Category::kElementwise, 33'000, kNoRow, "CUDAFunctor_add<c10::BFloat16>");
    const std::vector<GpuOpId> second = passes.add(made);
    const GpuOpId product = made.kernel(Category::kGemm, 90'000, made.run.gemm(DType::kBf16, 8192, 6144, 2048));
    const std::vector<int64_t> times = made.times(KernelChange::kFusedNorms);
    for (const std::vector<GpuOpId>& norm : {first, second}) {
      // The mean of numbers of 4 bytes, or squaring where all have the same type.
      const GpuOpId stays = norm[passes.widens ? 2 : 0];
      for (const GpuOpId op : norm)
        EXPECT_EQ(times[op], op == stays ? int64_t{made.run.trace.gpu_ops.dur_ns[op]} : 0) << op;
    }
    EXPECT_EQ(times[residual], kStays);
    EXPECT_EQ(times[product], kStays);
  }
}

TEST(KernelTimes, WhatIsNoNormStays) {
  const std::string_view multiply = "elementwise_kernel<BinaryFunctor<MulFunctor<float>>>", copy = "direct_copy_kernel",
                         power = "pow_tensor_scalar", mean = "reduce_kernel<MeanOps>", root = "rsqrt_kernel_cuda";
  const std::vector<std::vector<std::string_view>> chains = {
      {copy, mean, root, multiply, multiply},                           // nothing is squared: a mean
      {power, mean, multiply, multiply},                                // no root
      {power, mean, "vectorized_layer_norm_kernel", root, multiply},    // other work in between
      {copy, "vectorized_layer_norm_kernel", multiply, multiply, copy}  // one kernel already
  };
  for (const std::vector<std::string_view>& chain : chains) {
    Made made(StageKind::kPrefill, 8192);
    for (const std::string_view name : chain) made.kernel(Category::kElementwise, 40'000, kNoRow, name);
    for (const int64_t ns : made.times(KernelChange::kFusedNorms)) EXPECT_EQ(ns, kStays) << chain[1];
  }
  // What rotary embedding multiplies behind a norm is its own.
  Made made(StageKind::kPrefill, 8192);
  NormPasses{}.add(made);
  const GpuOpId rotary = made.kernel(Category::kElementwise, 40'000, kNoRow, multiply);
  EXPECT_EQ(made.times(KernelChange::kFusedNorms)[rotary], kStays);
}

// One of each kind: products limited by memory and by arithmetic, a pass over memory, a short one, and one of which
// nothing is known.
struct Kinds {
  Made made{StageKind::kDecode};
  WorkId few = made.run.gemm(DType::kBf16, 16, 8192, 8192), many = made.run.gemm(DType::kBf16, 4096, 4096, 4096);
  GpuOpId weights = made.kernel(Category::kGemm, 40'000, few), products = made.kernel(Category::kGemm, 300'000, many);
  GpuOpId pass = made.kernel(Category::kElementwise, 40'000);
  GpuOpId little = made.kernel(Category::kElementwise, 3'000, kNoRow, "another kernel");
  GpuOpId unknown = made.kernel(Category::kAttention, 50'000);
};

TEST(KernelScales, TwiceTheSequencesReadTheWeightsOnce) {
  Kinds kinds;
  Made& made = kinds.made;
  // Limited by memory now, by arithmetic then.
  const WorkId between = made.run.gemm(DType::kBf16, 150, 8192, 8192);
  const GpuOpId turns = made.kernel(Category::kGemm, 60'000, between);
  const GpuOpId unshaped = made.kernel(Category::kGemm, 40'000);
  const GpuOpId copy = made.run.gpu("Memcpy DtoD (Device -> Device)", Category::kCopy, made.at, 40'000,
                                    {.step = made.step, .kind = GpuOpKind::kMemcpy});
  const std::vector<double> factor = made.scales(Scale::kBatch).factor;
  const double weights = 2.0 * 8192 * 8192, rest = 2.0 * 2 * 16 * 8192;
  EXPECT_NEAR(factor[kinds.weights], (weights + 2 * rest) / (weights + rest), 1e-9);
  EXPECT_NEAR(factor[kinds.products], 2, 1e-9);
  const double then_ns = 2 * 2.0 * 150 * 8192 * 8192 / kHalvesPerNs;
  const double now_ns = (weights + 2.0 * 2 * 150 * 8192) / kBytesPerNs;
  EXPECT_GT(then_ns, now_ns);
  EXPECT_NEAR(factor[turns], then_ns / now_ns, 1e-3);
  for (const GpuOpId op : {kinds.pass, kinds.unknown, unshaped, copy}) EXPECT_EQ(factor[op], 2) << op;
  EXPECT_EQ(factor[kinds.little], 1) << "its fixed cost";
}

TEST(KernelScales, AHigherClockHelpsArithmeticAndShortKernels) {
  Kinds kinds;
  EXPECT_TRUE(kinds.made.scales(Scale::kClock).factor.empty());
  EXPECT_NE(kinds.made.scales(Scale::kClock).unknown.find("no SM clock"), std::string::npos);
  kinds.made.clock(1320);  // of 1980
  const replay::KernelScales scales = kinds.made.scales(Scale::kClock);
  EXPECT_EQ(scales.unknown, "");
  for (const GpuOpId op : {kinds.products, kinds.little}) EXPECT_NEAR(scales.factor[op], 2.0 / 3, 1e-9) << op;
  for (const GpuOpId op : {kinds.weights, kinds.pass, kinds.unknown}) EXPECT_EQ(scales.factor[op], 1) << op;
  Kinds full;
  full.made.clock(1995);
  for (const double factor : full.made.scales(Scale::kClock).factor) EXPECT_EQ(factor, 1) << "nothing gets slower";
}

TEST(KernelScales, AnotherGpuByItsDataSheet) {
  Kinds kinds;
  Made& made = kinds.made;
  const GpuOpId link = made.run.gpu("Memcpy HtoD (Pinned -> Device)", Category::kCopy, made.at, 40'000,
                                    {.step = made.step, .kind = GpuOpKind::kMemcpy});
  const replay::KernelScales a100 = made.scales(Scale::kGpu, "A100-SXM4-80GB");
  EXPECT_EQ(a100.unknown, "");
  const double memory = 4800.0 / 2039, arithmetic = 989.4 / 312;
  EXPECT_NEAR(a100.factor[kinds.weights], memory, 1e-6);
  EXPECT_NEAR(a100.factor[kinds.pass], memory, 1e-6);
  EXPECT_NEAR(a100.factor[kinds.products], arithmetic, 1e-3);
  EXPECT_NEAR(a100.factor[kinds.unknown], arithmetic, 1e-3) << "the less favourable";
  EXPECT_NEAR(a100.factor[kinds.little], 1980.0 / 1410, 1e-6);
  EXPECT_EQ(a100.factor[link], 1);
  const std::vector<double> h100 = made.scales(Scale::kGpu, "H100-SXM5-80GB").factor;
  EXPECT_NEAR(h100[kinds.weights], 4800.0 / 3350, 1e-6);
  EXPECT_NEAR(h100[kinds.products], 1, 1e-3);
  for (const double factor : made.scales(Scale::kGpu, "H200-SXM-141GB").factor) EXPECT_NEAR(factor, 1, 1e-9);
}

TEST(KernelScales, TypesThatTheOtherGpuLacksAreSaid) {
  Made made(StageKind::kPrefill, 4096);
  const GpuOpId op = made.kernel(Category::kGemm, 300'000, made.run.gemm(DType::kFp8, 8192, 4096, 4096));
  const replay::KernelScales a100 = made.scales(Scale::kGpu, "A100-SXM4-80GB");
  EXPECT_EQ(a100.factor[op], 1);
  EXPECT_NE(a100.unknown.find("fp8"), std::string::npos) << a100.unknown;
}

TEST(KernelScales, WithoutAGpuNothingIsKnownOfAnother) {
  AnalyzedRecording run(false);
  run.window(0, kMs);
  run.gpu("k", Category::kElementwise, 0, 40'000, {.step = run.step(StageKind::kDecode, 0, kMs, 1, 10)});
  const AnalyzeOptions options;
  const RecorderCosts costs;
  const ReplayedSteps replayed;
  const Groups groups = group_trace(run.trace);
  const HostPace host_pace(run.trace);
  const UndisturbedTimes undisturbed(run.trace, groups, replayed, costs, host_pace);
  const Context context{run.trace, options, groups, nullptr, costs, replayed, undisturbed, host_pace};
  for (const Scale scale : {Scale::kClock, Scale::kGpu}) {
    const replay::KernelScales scales = kernel_scales(context, scale, "H200-SXM-141GB");
    EXPECT_TRUE(scales.factor.empty());
    EXPECT_NE(scales.unknown, "");
  }
  EXPECT_EQ(kernel_scales(context, Scale::kBatch).factor[0], 2);
}

}  // namespace
}  // namespace llmprof
