// Operations of the GPU on the stand-in: own kernels and library calls really run, on the CPU, and are held against the
// references; every candidate must pass, and what is broken on purpose must be seen.
#include <cmath>

#include "device/elements.h"
#include "device/fill.h"
#include "device_cuda_support.h"
#include "kernels/cuda/cuda_op.h"
#include "kernels/cuda/ops.h"
#include "kernels/reference/compare.h"
#include "kernels/reference/rows.h"

namespace llmprof::kernels::cuda {
namespace {

class KernelsCudaOps : public device::cuda::FakeGpuOps {};

TEST_F(KernelsCudaOps, ProductsOfEveryType) {
  open();
  for (const DType dtype : {DType::kFp64, DType::kFp32, DType::kTf32, DType::kFp16, DType::kBf16, DType::kInt8})
    EXPECT_EQ(all_pass(prepare_gemm, ops::params_of({{"m", 48}, {"n", 32}, {"k", 80}}, dtype)), 3U)
        << dtype_name(dtype);
  EXPECT_EQ(all_pass(prepare_gemm, ops::params_of({{"m", 48}, {"n", 32}, {"k", 80}}, DType::kFp8)), 6U)
      << "with fast accumulation and without";
  EXPECT_EQ(device_->identity().libraries.back().name, "cuBLASLt");
}

TEST_F(KernelsCudaOps, AWrongProductIsSeen) {
  open();
  script_->wrong_algorithm = 1;
  Result<std::unique_ptr<PreparedOp>> op =
      prepare_gemm(*device_, ops::params_of({{"m", 48}, {"n", 32}, {"k", 80}}, DType::kBf16));
  ASSERT_TRUE(op);
  EXPECT_EQ((*op)->check(0)->status, CheckStatus::kPassed);
  EXPECT_EQ((*op)->check(1)->status, CheckStatus::kFailed) << "a row of it is not written";
}

TEST_F(KernelsCudaOps, TheLibraryIsQuotedWhenItRefuses) {
  open();
  const OpParams params = ops::params_of({{"m", 16}, {"n", 16}, {"k", 16}}, DType::kBf16);
  script_->heuristic_status = cublas::kNotSupported;
  EXPECT_TRUE(
      device::cuda::holds(refused(prepare_gemm, params), "16 x 16 x 16 of bf16: cuBLASLt says not supported (15)"))
      << refused(prepare_gemm, params);
  script_->heuristic_status = 0;
  script_->algorithms = 0;
  EXPECT_TRUE(device::cuda::holds(refused(prepare_gemm, params), "has no algorithm"));
}

TEST_F(KernelsCudaOps, WithoutTheLibraryItsNameIsSaid) {
  setenv(nvidia::kEnvCublasLt, "/nowhere/libcublasLt.so", 1);
  open();
  const std::string text = refused(prepare_gemm, ops::params_of({{"m", 16}, {"n", 16}, {"k", 16}}, DType::kBf16));
  EXPECT_TRUE(device::cuda::holds(text, "expected cuBLASLt") && device::cuda::holds(text, "nvidia-cublas")) << text;
}

TEST_F(KernelsCudaOps, StreamsOverMemory) {
  open();
  // Not a multiple of any tile; one smaller than a tile.
  for (const int64_t bytes : {int64_t{200 * 1024 + 48}, int64_t{4096}, int64_t{16}}) {
    EXPECT_EQ(all_pass(prepare_memory, ops::params_of({{"bytes", bytes}}, DType::kFp32, "read")), 7U) << bytes;
    EXPECT_EQ(all_pass(prepare_memory, ops::params_of({{"bytes", bytes}}, DType::kFp32, "write")), 8U) << bytes;
    EXPECT_EQ(all_pass(prepare_memory, ops::params_of({{"bytes", bytes}}, DType::kFp32, "copy")), 8U) << bytes;
    EXPECT_EQ(all_pass(prepare_memory, ops::params_of({{"bytes", bytes}}, DType::kFp32, "triad")), 7U) << bytes;
  }
  EXPECT_TRUE(device::cuda::holds(refused(prepare_memory, ops::params_of({{"bytes", 1000}}, DType::kFp32, "copy")),
                                  "multiple of 16"));
}

TEST_F(KernelsCudaOps, LargeArraysAreComparedInWindows) {
  script_->sms = 2;
  open();
  Result<std::unique_ptr<PreparedOp>> op =
      prepare_memory(*device_, ops::params_of({{"bytes", (20 << 20) + 16}}, DType::kFp32, "copy"));
  ASSERT_TRUE(op);
  const size_t driver = (*op)->candidates().size() - 1;
  EXPECT_EQ((*op)->candidates()[driver].backend, "cuMemcpyDtoD");
  const Result<Check> check = (*op)->check(driver);
  ASSERT_TRUE(check);
  EXPECT_EQ(check->status, CheckStatus::kPassed) << check->note;
  EXPECT_EQ(check->compared, kWindowed) << "64 windows";
  (*op)->candidates()[driver].enqueue = [](int) { return Status{}; };
  EXPECT_EQ((*op)->check(driver)->status, CheckStatus::kFailed) << "nothing was written";
}

TEST_F(KernelsCudaOps, WithoutACompilerTheDriverCopies) {
  setenv(nvidia::kEnvNvrtc, "/nowhere/libnvrtc.so", 1);
  open();
  EXPECT_EQ(all_pass(prepare_memory, ops::params_of({{"bytes", 4096}}, DType::kFp32, "copy")), 1U);
  EXPECT_TRUE(device::cuda::holds(refused(prepare_memory, ops::params_of({{"bytes", 4096}}, DType::kFp32, "triad")),
                                  "expected NVRTC"));
}

TEST_F(KernelsCudaOps, CopiesToAndFromTheHost) {
  open();
  for (const char* variant : {"h2d", "d2h", "h2d_pageable", "d2h_pageable"})
    EXPECT_EQ(all_pass(prepare_memcpy, ops::params_of({{"bytes", 1 << 20}}, DType::kFp32, variant)), 1U) << variant;
}

TEST_F(KernelsCudaOps, LaunchesAndWaits) {
  open();
  for (const char* variant : {"eager", "graph_node", "stream_sync", "event_sync"})
    EXPECT_EQ(all_pass(prepare_launch, ops::params_of({}, DType::kUnknown, variant)), 1U) << variant;
}

TEST_F(KernelsCudaOps, OperatorsOverRows) {
  open();
  for (const DType dtype : {DType::kBf16, DType::kFp16, DType::kFp32}) {
    for (const int64_t hidden : {int64_t{8}, int64_t{264}, int64_t{1600}}) {
      if (hidden == 1600 && dtype != DType::kBf16) continue;
      const OpParams plain = ops::params_of({{"tokens", 9}, {"hidden", hidden}}, dtype, "plain");
      OpParams residual = plain;
      residual.variant = "residual";
      EXPECT_GE(all_pass(prepare_rmsnorm, plain), 1U) << dtype_name(dtype) << " " << hidden;
      EXPECT_GE(all_pass(prepare_rmsnorm, residual), 1U) << dtype_name(dtype) << " " << hidden;
      EXPECT_GE(all_pass(prepare_layernorm_gelu, plain), 1U) << dtype_name(dtype) << " " << hidden;
      EXPECT_GE(all_pass(prepare_quantise, plain), 1U) << dtype_name(dtype) << " " << hidden;
      EXPECT_GE(all_pass(prepare_softmax, ops::params_of({{"rows", 9}, {"columns", hidden}}, dtype)), 1U)
          << dtype_name(dtype) << " " << hidden;
    }
    // Longer than the registers of a block hold.
    if (dtype == DType::kFp16) continue;
    EXPECT_EQ(all_pass(prepare_softmax, ops::params_of({{"rows", 2}, {"columns", 40960}}, dtype)), 2U)
        << dtype_name(dtype);
  }
  EXPECT_TRUE(
      device::cuda::holds(refused(prepare_rmsnorm, ops::params_of({{"tokens", 2}, {"hidden", 12}}, DType::kBf16)),
                          "hidden of bf16 must be a multiple of 8, found 12"));
}

// Rows about 0 and about 200 standard deviations from it, a row for each block and several, with full and partly empty
// blocks.
TEST_F(KernelsCudaOps, LayernormKeepsItsDigitsFarFromZero) {
  open();
  device::cuda::Context& context = device_->context();
  const device::cuda::Kernel kernel = *context.kernel({"rows.cu", {"T=Fp16", "ITEMS=2"}}, "layernorm_gelu");
  for (const unsigned grid : {5U, 2U}) {
    for (const int64_t columns : {int64_t{512}, int64_t{488}}) {
      constexpr int64_t kRows = 5;
      const size_t elements = static_cast<size_t>(kRows * columns);
      const Fill numbers{Fill::Kind::kUniform, DType::kFp32, 3, 0};
      std::vector<float> uniform(elements + 2 * static_cast<size_t>(columns));
      device::fill_elements(numbers, 0, uniform.size(), uniform.data());
      std::vector<uint16_t> bits;
      for (size_t i = 0; i < uniform.size(); ++i)
        bits.push_back(device::to_fp16(i >= elements                                 ? uniform[i]
                                       : (i / static_cast<size_t>(columns)) % 2 == 0 ? uniform[i]
                                                                                     : 120 + uniform[i]));
      const std::unique_ptr<Buffer> in = *device_->allocate(bits.size() * 2), out = *device_->allocate(elements * 2);
      ASSERT_TRUE(device_->upload(*in, 0, bits.data(), bits.size() * 2));
      const cuda_abi::DevicePtr x = device::cuda::pointer_of(*in), gain = x + elements * 2, bias = gain + columns * 2;
      ASSERT_TRUE(context.launch(kernel, grid, 32, x, gain, bias, device::cuda::pointer_of(*out), uint64_t{kRows},
                                 static_cast<uint32_t>(columns / 8), 1e-5F));
      const RowReader rows = rows_of(*device_, *in, DType::kFp16, columns);
      const Row g = *rows(kRows), b = *rows(kRows + 1);
      const Result<Check> check =
          check_rows(*device_, *out, DType::kFp16, columns, kRows, 1,
                     [&](int64_t row) -> Result<RowResult> { return layernorm_gelu_row(*rows(row), g, b, 1e-5); });
      ASSERT_TRUE(check);
      EXPECT_EQ(check->status, CheckStatus::kPassed) << columns << ": " << check->note;
    }
  }
}

TEST_F(KernelsCudaOps, OperatorsThatMoveEachElementOnce) {
  open();
  for (const DType dtype : {DType::kBf16, DType::kFp16, DType::kFp32}) {
    EXPECT_GE(all_pass(prepare_swiglu, ops::params_of({{"tokens", 70}, {"ffn", 88}}, dtype)), 2U);
    EXPECT_GE(all_pass(prepare_dequantise, ops::params_of({{"tokens", 70}, {"hidden", 88}}, dtype)), 2U);
    EXPECT_GE(
        all_pass(prepare_rope, ops::params_of({{"tokens", 9}, {"heads", 6}, {"kv_heads", 2}, {"head_dim", 48}}, dtype)),
        2U);
    EXPECT_GE(all_pass(prepare_embedding, ops::params_of({{"tokens", 37}, {"vocab", 101}, {"hidden", 72}}, dtype)), 2U);
    EXPECT_GE(all_pass(prepare_kv_append, ops::params_of({{"tokens", 37}, {"kv_heads", 3}, {"head_dim", 24}}, dtype)),
              2U);
  }
}

TEST_F(KernelsCudaOps, RegistersByEveryInstruction) {
  script_->sms = 2;
  script_->cc_major = 9;
  script_->cc_minor = 0;
  open();
  const auto names = [&](DType dtype, int64_t mflop) {
    const Result<std::unique_ptr<PreparedOp>> op =
        prepare_registers(*device_, ops::params_of({{"mflop", mflop}}, dtype));
    std::string all;
    if (!op) return op.error().text();
    for (const Candidate& candidate : (*op)->candidates()) all += candidate.backend + "; ";
    return all;
  };
  for (const DType dtype : {DType::kBf16, DType::kFp16, DType::kTf32, DType::kFp8, DType::kInt8}) {
    EXPECT_EQ(names(dtype, 10'000), "own wgmma; own mma.sync; ") << dtype_name(dtype);
    EXPECT_EQ(all_pass(prepare_registers, ops::params_of({{"mflop", 10'000}}, dtype)), 2U) << dtype_name(dtype);
  }
  EXPECT_EQ(names(DType::kFp32, 10'000), "own fma; ");
  EXPECT_EQ(names(DType::kFp64, 10'000), "own mma.sync; ");
  EXPECT_TRUE(device::cuda::holds(names(DType::kBf16, 10), "too few to tell"));
  script_->cc_major = 8;
  open();
  EXPECT_EQ(names(DType::kBf16, 10'000), "own mma.sync; ");
}

TEST_F(KernelsCudaOps, TokensAreDrawn) {
  open();
  for (const DType dtype : {DType::kBf16, DType::kFp16, DType::kFp32}) {
    // Values repeat where there are few of them, so that the last of the k largest has equals.
    for (const int64_t k : {int64_t{1}, int64_t{50}, int64_t{1000}}) {
      if (k != 50 && dtype != DType::kBf16) continue;  // the sort is the same for all, and slow here
      const OpParams params = ops::params_of({{"batch", 2}, {"vocab", 2504}, {"k", k}}, dtype, "top_k_top_p");
      EXPECT_EQ(all_pass(prepare_sampling, params), 1U) << dtype_name(dtype) << " " << k;
    }
    EXPECT_EQ(all_pass(prepare_sampling, ops::params_of({{"batch", 3}, {"vocab", 72}, {"k", 1}}, dtype, "greedy")), 2U);
    EXPECT_EQ(all_pass(prepare_sampling, ops::params_of({{"batch", 3}, {"vocab", 72}, {"k", 72}}, dtype)), 1U);
  }
  EXPECT_TRUE(device::cuda::holds(
      refused(prepare_sampling, ops::params_of({{"batch", 1}, {"vocab", 64}, {"k", 65}}, DType::kBf16)),
      "k can be at most 64, found 65"));
}

TEST_F(KernelsCudaOps, SaysWhatAChipDoesNotHave) {
  DeviceIdentity a100;
  a100.name = "A100";
  a100.cc_major = 8;
  const OpParams fp8 = ops::params_of({{"m", 16}, {"n", 16}, {"k", 16}}, DType::kFp8);
  EXPECT_EQ(gemm_unsupported(a100, fp8).value_or(""), "A100 (8.0) has no fp8 matrix units; they come with 8.9");
  EXPECT_TRUE(registers_unsupported(a100, fp8).has_value());
  DeviceIdentity h200 = a100;
  h200.cc_major = 9;
  EXPECT_EQ(gemm_unsupported(h200, fp8), std::nullopt);
  EXPECT_TRUE(gemm_unsupported(h200, ops::params_of({{"m", 16}, {"n", 17}, {"k", 16}}, DType::kFp8)).has_value());
  EXPECT_EQ(registers_unsupported(h200, fp8), std::nullopt);
  const OpParams fp4 = ops::params_of({{"m", 16}, {"n", 32}, {"k", 64}}, DType::kFp4);
  EXPECT_TRUE(
      device::cuda::holds(gemm_unsupported(h200, fp4).value_or(""), "has no fp4 matrix units; they come with 10.0"));
  DeviceIdentity b200 = a100;
  b200.cc_major = 10;
  EXPECT_EQ(gemm_unsupported(b200, fp4), std::nullopt);
  EXPECT_TRUE(gemm_unsupported(b200, ops::params_of({{"m", 16}, {"n", 32}, {"k", 48}}, DType::kFp4)).has_value());
  DeviceIdentity v100 = a100;
  v100.cc_major = 7;
  EXPECT_TRUE(gemm_unsupported(v100, ops::params_of({}, DType::kBf16)).has_value());
  EXPECT_FALSE(gemm_unsupported(v100, ops::params_of({}, DType::kFp16)).has_value());
  EXPECT_TRUE(own_kernel_unsupported(v100, {}).has_value());
}

}  // namespace
}  // namespace llmprof::kernels::cuda
