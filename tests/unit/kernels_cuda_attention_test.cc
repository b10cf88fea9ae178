// Attention on the stand-in: every candidate is held against the reference, and what is broken on purpose must be seen.
#include <cmath>

#include "device/elements.h"
#include "device_cuda_support.h"
#include "kernels/cuda/cuda_op.h"
#include "kernels/cuda/ops.h"
#include "kernels/reference/attention.h"
#include "ops/attention.h"

namespace llmprof::kernels::cuda {
namespace {

OpParams decode_params(int64_t batch, int64_t heads, int64_t kv_heads, int64_t head, int64_t context, DType dtype,
                       std::string variant) {
  return ops::params_of(
      {{"batch", batch}, {"heads", heads}, {"kv_heads", kv_heads}, {"head_dim", head}, {"context", context}}, dtype,
      std::move(variant));
}

OpParams prompt_params(int64_t batch, int64_t heads, int64_t kv_heads, int64_t head, int64_t prompt, int64_t context,
                       DType dtype, std::string variant) {
  return ops::params_of({{"batch", batch},
                         {"heads", heads},
                         {"kv_heads", kv_heads},
                         {"head_dim", head},
                         {"prompt", prompt},
                         {"context", context}},
                        dtype, std::move(variant));
}

class KernelsCudaAttention : public device::cuda::FakeGpuOps {
 protected:
  // Twice, since the second execution finds what the first left behind.
  size_t all_pass(const OpParams& params) {
    return device::cuda::FakeGpuOps::all_pass(prepare_attention_decode, params, 2);
  }
};

TEST_F(KernelsCudaAttention, DecodesEveryHeadAndLayout) {
  script_->sms = 1;
  open();
  for (const int64_t head : {64, 128, 256}) {
    // Contexts of no whole tiles and pages.
    EXPECT_GE(all_pass(decode_params(1, 1, 1, head, 75, DType::kBf16, "paged")), 2U) << head;
    EXPECT_GE(all_pass(decode_params(2, 4, 1, head, 90, DType::kFp16, "contiguous")), 2U) << head;
  }
}

TEST_F(KernelsCudaAttention, DecodesGroupsOfEverySize) {
  script_->sms = 1;
  open();
  for (const int64_t group : {3, 8, 16, 20})
    EXPECT_GE(all_pass(decode_params(1, 2 * group, 2, 64, 49, DType::kBf16, "contiguous")), 1U) << group;
}

// So many sequences that keys are not split: every shape of block is offered, and its warps take several tiles each.
TEST_F(KernelsCudaAttention, KeepsTilesOnTheirWay) {
  script_->sms = 1;
  open();
  EXPECT_GE(all_pass(decode_params(8, 2, 1, 64, 264, DType::kBf16, "contiguous")), 5U);
  EXPECT_GE(all_pass(decode_params(8, 9, 1, 128, 140, DType::kFp16, "paged")), 5U);
}

TEST_F(KernelsCudaAttention, OffersEveryWay) {
  script_->sms = 1;
  open();
  const auto ways = [&](int64_t head, const char* variant) {
    std::string names;
    Result<std::unique_ptr<PreparedOp>> op =
        prepare_attention_decode(*device_, decode_params(1, 2, 1, head, 64, DType::kBf16, variant));
    EXPECT_TRUE(op) << op.error().text();
    if (op)
      for (const Candidate& candidate : (*op)->candidates()) names += candidate.backend + "; ";
    return names;
  };
  const std::string contiguous = ways(128, "contiguous"), paged = ways(128, "paged"), wide = ways(256, "paged");
  EXPECT_TRUE(device::cuda::holds(contiguous, "registers") && device::cuda::holds(contiguous, "stages")) << contiguous;
  EXPECT_FALSE(device::cuda::holds(wide, "registers")) << wide;
  setenv(nvidia::kEnvNvrtc, "/nowhere/libnvrtc.so", 1);
  open();
  EXPECT_TRUE(device::cuda::holds(ways(128, "contiguous"), "cuDNN A #0")) << "without a compiler the library is left";
  EXPECT_TRUE(device::cuda::holds(ways(128, "paged"), "cuDNN A #0"));
}

TEST_F(KernelsCudaAttention, CudnnTakesPages) {
  setenv(nvidia::kEnvNvrtc, "/nowhere/libnvrtc.so", 1);
  open();
  EXPECT_EQ(all_pass(decode_params(3, 4, 2, 64, 75, DType::kBf16, "paged")), 3U);
  EXPECT_EQ(all_pass(decode_params(1, 4, 1, 256, 33, DType::kFp16, "paged")), 3U);
  EXPECT_EQ(script_->cudnn_descriptors, 0) << "descriptors that were never destroyed";
  script_->cudnn_version = 90400;
  open();
  EXPECT_TRUE(device::cuda::holds(
      refused(prepare_attention_decode, decode_params(1, 4, 1, 64, 33, DType::kFp16, "paged")), "expected NVRTC"));
}

TEST_F(KernelsCudaAttention, DecodesOneKey) {
  script_->sms = 1;
  open();
  EXPECT_GE(all_pass(decode_params(1, 4, 1, 128, 1, DType::kBf16, "contiguous")), 1U);
  EXPECT_GE(all_pass(decode_params(1, 4, 1, 128, 1, DType::kFp16, "paged")), 1U);
}

// Own kernels alone, since there is no cuDNN: prompts of no whole blocks and tiles, keys before the prompt, one query.
TEST_F(KernelsCudaAttention, OwnKernelsTakePrompts) {
  setenv(nvidia::kEnvCudnn, "/nowhere/libcudnn.so", 1);
  script_->cc_major = 8;
  open();
  const auto passed = [&](const OpParams& params) {
    return device::cuda::FakeGpuOps::all_pass(prepare_attention, params);
  };
  EXPECT_EQ(passed(prompt_params(2, 2, 1, 64, 131, 1, DType::kBf16, "causal")), 2U);
  EXPECT_EQ(passed(prompt_params(1, 2, 1, 64, 20, 90, DType::kFp16, "full")), 2U);
  EXPECT_EQ(passed(prompt_params(1, 2, 1, 128, 77, 150, DType::kFp16, "causal")), 3U);
  EXPECT_EQ(passed(prompt_params(1, 1, 1, 256, 70, 1, DType::kBf16, "causal")), 1U);
  EXPECT_EQ(passed(prompt_params(1, 3, 3, 64, 1, 40, DType::kFp16, "causal")), 2U);
  EXPECT_TRUE(device::cuda::holds(refused(prepare_attention, prompt_params(1, 1, 1, 96, 8, 1, DType::kBf16, "full")),
                                  "libcudnn"));
}

TEST_F(KernelsCudaAttention, WhatIsNotWrittenIsSeen) {
  script_->sms = 1;
  open();
  Result<std::unique_ptr<PreparedOp>> op =
      prepare_attention_decode(*device_, decode_params(1, 4, 1, 64, 40, DType::kBf16, "contiguous"));
  ASSERT_TRUE(op);
  ASSERT_EQ((*op)->check(0)->status, CheckStatus::kPassed);
  (*op)->candidates()[0].enqueue = [](int) { return Status{}; };
  EXPECT_EQ((*op)->check(0)->status, CheckStatus::kFailed) << "nothing was written";
}

// Results of `context` keys held against the reference of one key more or fewer.
TEST_F(KernelsCudaAttention, ALostKeyIsSeen) {
  open();
  AttentionShape shape;
  shape.heads = 4;
  shape.head_dim = 64;
  shape.keys = 700;
  Result<std::unique_ptr<Buffer>> q = device_->allocate(4 * 64 * 2), out = device_->allocate(4 * 64 * 2);
  Result<std::unique_ptr<Buffer>> k = device_->allocate(700 * 64 * 2), v = device_->allocate(700 * 64 * 2);
  ASSERT_TRUE(q && out && k && v);
  for (Buffer* buffer : {q->get(), k->get(), v->get()})
    ASSERT_TRUE(device_->fill(*buffer, {Fill::Kind::kUniform, DType::kBf16, 7, 0}));
  const auto expect = [&](const AttentionShape& of) {
    return *expect_attention(*device_, of, **q, dense_heads(*device_, **k, of), dense_heads(*device_, **v, of), 1);
  };
  const AttentionExpected expected = expect(shape);
  ASSERT_EQ(expected.rows.size(), 4U);
  const auto write = [&](const AttentionExpected& values) {
    std::vector<uint16_t> bits;
    for (const AttentionRow& row : values.values)
      for (const double value : row.out) bits.push_back(device::to_bf16(static_cast<float>(value)));
    ASSERT_TRUE(device_->upload(**out, 0, bits.data(), bits.size() * 2));
  };
  write(expected);
  EXPECT_EQ(check_attention(*device_, shape, **out, expected)->status, CheckStatus::kPassed);
  shape.keys = 699;
  write(expect(shape));
  EXPECT_EQ(check_attention(*device_, shape, **out, expected)->status, CheckStatus::kFailed);
}

TEST_F(KernelsCudaAttention, SaysWhatItDoesNotTake) {
  DeviceIdentity h200;
  h200.cc_major = 9;
  const auto why = [&](int64_t heads, int64_t kv_heads, int64_t head) {
    return attention_decode_unsupported(h200, decode_params(1, heads, kv_heads, head, 16, DType::kBf16, "paged"))
        .value_or("");
  };
  EXPECT_EQ(why(32, 8, 128), "");
  EXPECT_TRUE(device::cuda::holds(why(32, 8, 96), "64, 128 and 256")) << why(32, 8, 96);
  EXPECT_TRUE(device::cuda::holds(why(32, 5, 64), "32 is none of 5")) << why(32, 5, 64);
}

}  // namespace
}  // namespace llmprof::kernels::cuda
