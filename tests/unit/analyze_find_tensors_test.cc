// Findings about what kernels of a step work on, and about copies and graphs that its calls make.
#include <gtest/gtest.h>

#include <array>

#include "analyze/double_precision.h"
#include "analyze_recording.h"
#include "several_streams.h"

namespace llmprof {
namespace {

// One-hot rows of a vocabulary, or what a step of this model has anyway.
TEST(FindTensors, PassesOverMoreThanTheModelHolds) {
  for (const bool large : {true, false}) {
    OneStep made(StageKind::kDecode, 10 * kMs, 32, 0);
    made.kernel(Category::kGemm, 2'000'000, made.run.gemm(DType::kBf16, 32, 32000, 2048));
    const int32_t wide = 128'000, narrow = 16;
    made.kernel(Category::kElementwise, 1'500'000, kNoRow, "FillFunctor<long>", large ? wide : narrow);
    made.kernel(Category::kElementwise, 30'000, kNoRow, "softmax of logits", wide);
    const Report report = report_of(made.run);
    const Finding* const finding = finding_of(report, "oversized-tensors", "decode");
    ASSERT_EQ(finding != nullptr, large) << "a grid of few blocks takes long whatever it reads";
    if (finding == nullptr) continue;
    EXPECT_DOUBLE_EQ(finding->evidence[0].value.value_or(0), 1);
    EXPECT_DOUBLE_EQ(finding->evidence[1].value.value_or(0), 1.5);
    // An H200's 4.8 TB/s, of which kernels reach 80 %.
    EXPECT_NEAR(finding->evidence[2].value.value_or(0), 1.5e-3 * 4.8e12 * 0.8, 1e7);
    EXPECT_EQ(finding->where[0].name, "FillFunctor<long>");
  }
}

// What the products' shapes do not cover may be as large.
TEST(FindTensors, UnknownProductsSayNothingOfWhatIsLarge) {
  OneStep made(StageKind::kDecode, 10 * kMs, 32, 0);
  made.kernel(Category::kGemm, 2'000'000, made.run.gemm(DType::kBf16, 32, 32000, 2048));
  made.kernel(Category::kGemm, 2'000'000);
  made.kernel(Category::kElementwise, 1'500'000, kNoRow, "FillFunctor<long>", 128'000);
  EXPECT_EQ(finding_of(report_of(made.run), "oversized-tensors", "decode"), nullptr);
}

// A sampler whose numbers became doubles. As PyTorch 2.11 names its kernels.
TEST(FindTensors, KernelsThatComputeInDoublePrecision) {
  constexpr std::array kDouble = {
      "void at::native::vectorized_elementwise_kernel<2, at::native::BinaryFunctor<double, double, double, "
      "at::native::binary_internal::DivFunctor<double> >, std::array<char*, 3ul> >(int)",
      "void at::native::vectorized_elementwise_kernel<2, at::native::exp_kernel_cuda(at::TensorIteratorBase&)::"
      "{lambda()#2}::operator()() const::{lambda()#1}::operator()() const::{lambda(double)#1}>(int)",
      "void at::native::(anonymous namespace)::cunn_SoftMaxForward<2, double, double, double, "
      "at::native::(anonymous namespace)::SoftMaxForwardEpilogue>(double*, double const*, int)",
      "cutlass_80_tensorop_d884gemm_64x64_16x4_nn_align1"};
  for (const char* const name : kDouble) EXPECT_TRUE(computes_in_double(name)) << name;
  constexpr std::array kOthers = {
      "void at::native::(anonymous namespace)::distribution_elementwise_grid_stride_kernel<float, 4, "
      "at::native::templates::cuda::uniform_kernel<at::CUDAGeneratorImpl*>(at::TensorIteratorBase&, double, double, "
      "at::CUDAGeneratorImpl*)::{lambda()#1}>(long)",
      "void at::native::vectorized_elementwise_kernel<4, at::native::(anonymous namespace)::"
      "pow_tensor_scalar_kernel_impl<float, float>(at::TensorIteratorBase&, float)::{lambda(float)#4}>(int)",
      "nvjet_sm90_tst_64x8_64x16_4x1_v_bz_TNT"};
  for (const char* const name : kOthers) EXPECT_FALSE(computes_in_double(name)) << name;
  OneStep made(StageKind::kDecode, 10 * kMs, 32, 0);
  made.kernel(Category::kGemm, 2'000'000, made.run.gemm(DType::kBf16, 32, 32000, 2048));
  made.kernel(Category::kElementwise, 1'500'000, kNoRow, kDouble[0], 4096);
  made.kernel(Category::kElementwise, 500'000, kNoRow, kDouble[1], 4096);
  made.kernel(Category::kElementwise, 900'000, kNoRow, kOthers[1], 4096);
  const Report report = report_of(made.run);
  const Finding* const finding = finding_of(report, "double-precision", "decode");
  ASSERT_NE(finding, nullptr);
  EXPECT_DOUBLE_EQ(finding->evidence[0].value.value_or(0), 2);
  EXPECT_DOUBLE_EQ(finding->evidence[1].value.value_or(0), 2);
  EXPECT_DOUBLE_EQ(finding->evidence[2].value.value_or(0), 1);
  EXPECT_EQ(finding->where[0].name, kDouble[0]);
}

// As cuDNN 9 names them.
TEST(FindTensors, ConversionsAroundConvolutions) {
  for (const bool converts : {true, false}) {
    OneStep made(StageKind::kDecode, 10 * kMs, 32, 0);
    for (int layer = 0; layer < 10; ++layer) {
      if (converts) {
        made.kernel(
            Category::kOther, 60'000, kNoRow,
            "void cudnn::engines_precompiled::nchwToNhwcKernel<__nv_bfloat16, __nv_bfloat16, float, false, true>()");
        made.kernel(
            Category::kOther, 40'000, kNoRow,
            "void cudnn::engines_precompiled::nhwcToNchwKernel<__nv_bfloat16, __nv_bfloat16, float, true, false>()");
      }
      made.kernel(Category::kConvolution, 200'000, kNoRow, "sm90_xmma_fprop_implicit_gemm_bf16bf16_nhwckrsc_nhwc");
    }
    const Report report = report_of(made.run);
    const Finding* const finding = finding_of(report, "layout-conversion", "decode");
    ASSERT_EQ(finding != nullptr, converts);
    if (finding == nullptr) continue;
    EXPECT_DOUBLE_EQ(finding->evidence[0].value.value_or(0), 20);
    EXPECT_DOUBLE_EQ(finding->evidence[1].value.value_or(0), 1);
  }
}

// 48 matrices of 2048 x 64 are 12.6 MB, which take 3.3 us to write.
TEST(FindTensors, WeightsThatAreGatheredForEachRow) {
  for (const int64_t gather_ns : {200'000, 1'000}) {
    OneStep made(StageKind::kDecode, 10 * kMs, 48, 0);
    for (int layer = 0; layer < 10; ++layer) {
      const WorkId product = made.run.gemm(DType::kBf16, 1, 64, 2048);
      made.run.trace.works.batch[product] = 48;
      made.kernel(Category::kEmbedding, gather_ns, kNoRow, "vectorized_gather_kernel");
      made.kernel(Category::kGemm, 100'000, product);
      made.kernel(Category::kGemm, 100'000, made.run.gemm(DType::kBf16, 48, 2048, 2048));
    }
    const Report report = report_of(made.run);
    const Finding* const finding = finding_of(report, "gathered-weights", "decode");
    ASSERT_EQ(finding != nullptr, gather_ns == 200'000);
    if (finding == nullptr) continue;
    EXPECT_DOUBLE_EQ(finding->evidence[0].value.value_or(0), 10);
    EXPECT_DOUBLE_EQ(finding->evidence[1].value.value_or(0), 2);
    EXPECT_DOUBLE_EQ(finding->evidence[3].value.value_or(0), 10.0 * 48 * 2048 * 64 * 2);
  }
}

// Queries and keys in single precision between products in bf16: many queries are arithmetic, one is bytes.
TEST(FindTensors, AttentionOnFourByteNumbers) {
  constexpr const char* kWide = "fmha_cutlassF_f32_aligned_64x128_rf_sm80(Params)";
  for (const int64_t rows : {8192, 4}) {
    OneStep made(rows > 4 ? StageKind::kPrefill : StageKind::kDecode, 10 * kMs, rows, 0);
    made.kernel(Category::kGemm, 2'000'000, made.run.gemm(DType::kBf16, rows, 2048, 2048));
    made.kernel(Category::kAttention, 6'000'000, kNoRow, kWide);
    made.run.trace.steps.sequences[0] = 4;
    made.run.trace.steps.gemm_rows[0] = rows;
    const Report report = report_of(made.run);
    const Finding* const finding = finding_of(report, "dtype-wide", rows > 4 ? "prefill" : "decode");
    ASSERT_NE(finding, nullptr);
    EXPECT_DOUBLE_EQ(finding->evidence[0].value.value_or(0), 6);
    EXPECT_DOUBLE_EQ(finding->evidence[2].value.value_or(0), rows > 4 ? 1 : 3);
  }
  OneStep made(StageKind::kPrefill, 10 * kMs, 8192, 0);
  made.kernel(Category::kGemm, 2'000'000, made.run.gemm(DType::kBf16, 8192, 2048, 2048));
  made.kernel(Category::kAttention, 6'000'000, kNoRow, "fmha_cutlassF_bf16_aligned_64x128_rf_sm80(Params)");
  EXPECT_EQ(finding_of(report_of(made.run), "dtype-wide", "prefill"), nullptr);
}

TEST(FindTensors, GraphsThatAreCapturedInEachStep) {
  for (const bool anew : {true, false}) {
    OneStep made(StageKind::kDecode, 10 * kMs, 4, 0);
    if (anew) {
      made.run.api("cudaStreamBeginCapture", 1 * kMs, 2'000);
      made.run.api("cudaLaunchKernel", 2 * kMs, 2'000);
      made.run.api("cudaStreamEndCapture", 3 * kMs, 10'000);
      made.run.api("cudaGraphInstantiate", 4 * kMs, 1 * kMs);
    }
    made.run.api("cudaGraphLaunch", 6 * kMs, 10'000);
    made.kernel(Category::kGemm, 1 * kMs, made.run.gemm(DType::kBf16, 4, 2048, 2048));
    const Report report = report_of(made.run);
    const Finding* const finding = finding_of(report, "graphs-made-anew", "decode");
    ASSERT_EQ(finding != nullptr, anew);
    if (finding == nullptr) continue;
    EXPECT_DOUBLE_EQ(finding->evidence[0].value.value_or(0), 1);
    EXPECT_DOUBLE_EQ(finding->evidence[1].value.value_or(0), 4) << "from its start to the graph";
  }
}

// Eighty nodes of a step as one graph, or as twenty, 4 us apart on the GPU.
TEST(FindTensors, StepsThatLaunchManyGraphs) {
  for (const int graphs : {20, 1}) {
    TestTrace b;
    const int nodes = 80 / graphs;
    int64_t host = kMs, length = 0;
    for (int step = 0; step < 12; ++step) {
      const int64_t begin = host;
      int64_t gpu = host + 10'000;
      for (int graph = 0; graph < graphs; ++graph) {
        const uint64_t id = b.api("cudaGraphLaunch", host, 3'000);
        b.names(StreamId(0));
        gpu = std::max(gpu + 4'000, host + 8'000);
        for (int n = 0; n < nodes; ++n) {
          const uint64_t node = 100 + static_cast<uint64_t>(graph * nodes + n);
          if (step == 0 && n > 0) b.graph_edge(node, node - 1);
          b.node_kernel("gemm", gpu, 3'000, id, node);
          gpu += 3'000 + (n + 1 < nodes ? 500 : 0);
        }
        host += 4'000;
      }
      b.api("cudaDeviceSynchronize", host, gpu + 2'000 - host);
      host = gpu + 4'000;
      b.annotation("decode", begin, host - begin);
      length = host - begin;
      host += 20'000;
    }
    b.level(0, host + kMs, RecordingLevel::kDefault);
    const Report report = report_of(b.derive_all());
    const Finding* const finding = finding_of(report, "graphs-in-pieces", "decode");
    ASSERT_EQ(finding != nullptr, graphs == 20);
    if (finding == nullptr) continue;
    EXPECT_DOUBLE_EQ(finding->evidence[0].value.value_or(0), 20);
    EXPECT_DOUBLE_EQ(finding->evidence[1].value.value_or(0), 4);
    EXPECT_NEAR(finding->evidence[2].value.value_or(0), 0.076, 1e-6) << "19 times 4 us";
    ASSERT_TRUE(finding->gain);
    EXPECT_EQ(finding->gain->method, "replay");
    // Nodes lie 0.5 us apart: 3.5 us less between two graphs.
    EXPECT_NEAR(1 - finding->gain->to / finding->gain->from, 19 * 3.5e3 / static_cast<double>(length), 0.02);
    EXPECT_EQ(finding_of(report, "launch-bound", "decode"), nullptr) << "the change is the same";
  }
}

TEST(FindTensors, CopiesOfBothWaysInOneStream) {
  for (const bool one_stream : {true, false}) {
    TestTrace b = BothWays{.one_stream = one_stream}.made();
    b.level(-kMs, 100 * kMs, RecordingLevel::kDefault, 0);
    const Report report = report_of(b.derive_all());
    const Finding* const finding = finding_of(report, "copies-one-stream", "prefill");
    ASSERT_EQ(finding != nullptr, one_stream);
    if (finding == nullptr) continue;
    EXPECT_NE(finding->title.find("in stream 13"), std::string::npos) << finding->title;
    EXPECT_NEAR(finding->evidence[0].value.value_or(0), 0.4, 0.05);
    EXPECT_NEAR(finding->evidence[1].value.value_or(0), 0.35, 0.05);
    ASSERT_TRUE(finding->gain);
    EXPECT_EQ(finding->gain->method, "replay");
  }
}

}  // namespace
}  // namespace llmprof
