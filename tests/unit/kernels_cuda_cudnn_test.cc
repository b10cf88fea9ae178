// Operations by cuDNN on the stand-in, which interprets the graphs that it is given.
#include <cmath>

#include "device_cuda_support.h"
#include "kernels/cuda/cuda_op.h"
#include "kernels/cuda/cudnn_graph.h"
#include "kernels/cuda/ops.h"
#include "ops/attention.h"
#include "ops/layers.h"

namespace llmprof::kernels::cuda {
namespace {

OpParams attention_params(int64_t heads, int64_t kv_heads, int64_t prompt, int64_t context, DType dtype,
                          std::string variant) {
  return ops::params_of({{"batch", 2},
                         {"heads", heads},
                         {"kv_heads", kv_heads},
                         {"head_dim", 16},
                         {"prompt", prompt},
                         {"context", context}},
                        dtype, std::move(variant));
}
OpParams conv_params(int64_t kernel, int64_t stride, DType dtype, std::string variant) {
  return ops::params_of(
      {{"batch", 2}, {"height", 9}, {"width", 7}, {"in", 6}, {"out", 10}, {"kernel", kernel}, {"stride", stride}},
      dtype, std::move(variant));
}
OpParams lstm_params(int64_t input, int64_t layers, DType dtype) {
  return ops::params_of({{"batch", 3}, {"tokens", 6}, {"input", input}, {"hidden", 12}, {"layers", layers}}, dtype);
}

class KernelsCudaCudnn : public device::cuda::FakeGpuOps {};

TEST_F(KernelsCudaCudnn, AttentionOfAPrompt) {
  open();
  for (const DType dtype : {DType::kBf16, DType::kFp16}) {
    EXPECT_EQ(all_pass(prepare_attention, attention_params(4, 4, 9, 1, dtype, "causal")), 3U);
    EXPECT_EQ(all_pass(prepare_attention, attention_params(8, 2, 9, 1, dtype, "full")), 3U);
    // The mask begins at the last key, not at the first.
    EXPECT_EQ(all_pass(prepare_attention, attention_params(4, 1, 5, 17, dtype, "causal")), 3U);
  }
  EXPECT_EQ(device_->identity().libraries.back().name, "cuDNN");
  EXPECT_EQ(device_->identity().libraries.back().version, "9.14.0");
  EXPECT_EQ(script_->cudnn_descriptors, 0) << "descriptors that were never destroyed";
}

TEST_F(KernelsCudaCudnn, Convolutions) {
  open();
  for (const DType dtype : {DType::kBf16, DType::kFp16, DType::kTf32}) {
    EXPECT_EQ(all_pass(prepare_conv2d, conv_params(3, 1, dtype, "same")), 3U) << dtype_name(dtype);
    EXPECT_EQ(all_pass(prepare_conv2d, conv_params(3, 2, dtype, "valid")), 3U) << dtype_name(dtype);
    EXPECT_EQ(all_pass(prepare_conv2d, conv_params(1, 1, dtype, "valid")), 3U) << dtype_name(dtype);
  }
}

TEST_F(KernelsCudaCudnn, LstmByEveryAlgorithm) {
  open();
  for (const DType dtype : {DType::kBf16, DType::kFp16, DType::kTf32}) {
    EXPECT_EQ(all_pass(prepare_lstm, lstm_params(8, 1, dtype)), 2U) << "the third is refused, " << dtype_name(dtype);
    EXPECT_EQ(all_pass(prepare_lstm, lstm_params(20, 3, dtype)), 2U) << dtype_name(dtype);
  }
}

TEST_F(KernelsCudaCudnn, AWrongPlanIsSeen) {
  open();
  script_->wrong_algorithm = 1;
  for (const Prepare prepare : {Prepare{prepare_attention}, Prepare{prepare_conv2d}}) {
    Result<std::unique_ptr<PreparedOp>> op =
        prepare == Prepare{prepare_conv2d} ? prepare(*device_, conv_params(3, 1, DType::kBf16, "same"))
                                           : prepare(*device_, attention_params(4, 2, 9, 1, DType::kBf16, "causal"));
    ASSERT_TRUE(op) << op.error().text();
    EXPECT_EQ((*op)->check(0)->status, CheckStatus::kPassed);
    EXPECT_EQ((*op)->candidates()[1].backend, "cuDNN A #1");
    EXPECT_EQ((*op)->check(1)->status, CheckStatus::kFailed) << "a row of it is not written";
  }
}

TEST_F(KernelsCudaCudnn, ARefusedPlanIsPassedOver) {
  open();
  script_->cudnn_refused_plan = 0;
  Result<std::unique_ptr<PreparedOp>> op = prepare_conv2d(*device_, conv_params(3, 1, DType::kBf16, "same"));
  ASSERT_TRUE(op) << op.error().text();
  EXPECT_EQ((*op)->candidates()[0].backend, "cuDNN A #1");
  EXPECT_EQ((*op)->check(0)->status, CheckStatus::kPassed);
  script_->algorithms = 1;
  Result<std::unique_ptr<PreparedOp>> other = prepare_conv2d(*device_, conv_params(3, 1, DType::kBf16, "same"));
  ASSERT_TRUE(other) << other.error().text();
  EXPECT_EQ((*other)->candidates()[0].backend, "cuDNN fallback #0");
}

TEST_F(KernelsCudaCudnn, ItsWordsAreQuoted) {
  open();
  script_->algorithms = 0;
  EXPECT_TRUE(
      device::cuda::holds(refused(prepare_conv2d, conv_params(3, 1, DType::kBf16, "same")), "cuDNN has no plan"));
  Result<const device::cuda::Cudnn*> cudnn = device_->context().cudnn();
  ASSERT_TRUE(cudnn);
  CudnnGraph graph(**cudnn);
  const CudnnGraph::Tensor a = graph.in_memory(DType::kBf16, {1, 1, 4, 4}, {16, 16, 4, 1});
  const CudnnGraph::Tensor b = graph.between(cudnn::kFloat, {1, 1, 4, 4});
  graph.pointwise({.mode = cudnn::kExp}, a, b);
  script_->algorithms = 3;
  script_->cudnn_refused_plan = 0;
  EXPECT_EQ((*graph.plans(1)).size(), 1U) << "of the fallback";
}

TEST_F(KernelsCudaCudnn, WithoutTheLibraryItsNameIsSaid) {
  setenv(nvidia::kEnvCudnn, "/nowhere/libcudnn.so.9", 1);
  open();
  const std::string text = refused(prepare_attention, attention_params(4, 4, 9, 1, DType::kBf16, "causal"));
  EXPECT_TRUE(device::cuda::holds(text, "expected cuDNN 9") && device::cuda::holds(text, "nvidia-cudnn")) << text;
}

TEST_F(KernelsCudaCudnn, AnOldLibraryIsNotTaken) {
  script_->cudnn_version = 8904;
  open();
  const std::string text = refused(prepare_lstm, lstm_params(8, 1, DType::kFp16));
  EXPECT_TRUE(device::cuda::holds(text, "it is cuDNN 8.9")) << text;
}

TEST_F(KernelsCudaCudnn, ALibraryThatDoesNotStartSaysSo) {
  script_->cudnn_status = cudnn::kNotInitialized;
  open();
  const std::string text = refused(prepare_conv2d, conv_params(3, 1, DType::kBf16, "same"));
  EXPECT_TRUE(device::cuda::holds(text, "cuDNN did not start")) << text;
}

}  // namespace
}  // namespace llmprof::kernels::cuda
