// The GEMM family and what routes tokens to it on a GPU, by stand-ins for cuBLASLt and cuBLAS that compute.
#include <array>

#include "device_cuda_support.h"
#include "kernels/cuda/lt_product.h"
#include "kernels/cuda/ops.h"
#include "ops/product.h"

namespace llmprof::kernels::cuda {
namespace {

class KernelsCudaProducts : public device::cuda::FakeGpuOps {};

TEST_F(KernelsCudaProducts, EveryEpilogue) {
  open();
  for (const DType dtype : {DType::kFp16, DType::kBf16})
    for (const char* variant : {"plain", "bias", "bias_gelu", "residual"})
      EXPECT_EQ(all_pass(prepare_gemm, ops::params_of({{"m", 24}, {"n", 32}, {"k", 40}}, dtype, variant)), 3U)
          << variant;
  EXPECT_EQ(all_pass(prepare_gemm, ops::params_of({{"m", 24}, {"n", 32}, {"k", 40}}, DType::kFp32, "residual")), 3U);
}

// One row or a few: cuBLAS beside cuBLASLt, both layouts of the weights, and own kernels.
TEST_F(KernelsCudaProducts, FewRowsInEveryWay) {
  open();
  const auto backends = [&](const OpParams& params) {
    Result<std::unique_ptr<PreparedOp>> op = prepare_gemm(*device_, params);
    std::string all;
    if (op)
      for (const Candidate& candidate : (*op)->candidates()) all += candidate.backend + "\n";
    return all;
  };
  const auto params = [](int64_t m, int64_t n, int64_t k, DType dtype) {
    return ops::params_of({{"m", m}, {"n", n}, {"k", k}}, dtype);
  };
  // Rows that fill no tile, weights that end within one, and k in one step, in a few and in many.
  for (const int64_t m : {1, 8, 9, 16}) {
    EXPECT_GT(all_pass(prepare_gemm, params(m, 33, 32, DType::kBf16)), 8U) << m;
    EXPECT_GT(all_pass(prepare_gemm, params(m, 40, 1056, DType::kFp16)), 8U) << m;
  }
  const std::string all = backends(params(1, 64, 96, DType::kBf16));
  for (const char* way : {"cuBLASLt #0\n", "cuBLASLt #0, weights as [k, n]\n", "cuBLAS\n",
                          "cuBLAS, weights as [k, n]\n", "own 16 rows a block, 8 ahead\n"})
    EXPECT_TRUE(device::cuda::holds(all, way)) << way << all;
  EXPECT_FALSE(device::cuda::holds(backends(params(1, 64, 80, DType::kBf16)), "own")) << "no whole steps";
  EXPECT_EQ(all_pass(prepare_gemm, params(17, 64, 96, DType::kBf16)), 3U);
  EXPECT_EQ(all_pass(prepare_gemm, params(1, 64, 96, DType::kFp32)), 3U);
}

TEST_F(KernelsCudaProducts, AnEpilogueThatIsNotMeasuredIsSaid) {
  const auto why = [](DType dtype, const char* variant) {
    return gemm_epilogue_unsupported(ops::params_of({{"m", 16}, {"n", 16}, {"k", 16}}, dtype, variant)).value_or("");
  };
  EXPECT_EQ(why(DType::kBf16, "bias_gelu"), "");
  EXPECT_EQ(why(DType::kInt8, "plain"), "");
  EXPECT_EQ(why(DType::kInt8, "residual"),
            "residual of int8 products is not measured on a GPU; of bf16 and fp16 it is");
  EXPECT_TRUE(device::cuda::holds(why(DType::kFp32, "bias"), "bias of fp32"));
}

TEST_F(KernelsCudaProducts, Batches) {
  open();
  for (const DType dtype : {DType::kBf16, DType::kFp32, DType::kTf32})
    EXPECT_EQ(all_pass(prepare_gemm_batched, ops::params_of({{"batch", 3}, {"m", 16}, {"n", 24}, {"k", 32}}, dtype)),
              3U);
}

TEST_F(KernelsCudaProducts, ScalesByTheLibraryOrByAKernel) {
  script_->cublaslt_version = 120905;
  open();
  const auto params = [](DType dtype) { return ops::params_of({{"m", 48}, {"n", 32}, {"k", 80}}, dtype); };
  EXPECT_EQ(all_pass(prepare_gemm_w8a8, params(DType::kFp8)), 6U) << "scaled by cuBLASLt, and behind it";
  EXPECT_EQ(all_pass(prepare_gemm_w8a8, params(DType::kInt8)), 3U);
  const std::vector<std::string> libraries = {"cuBLASLt #0, own scaling"};
  Result<std::unique_ptr<PreparedOp>> op = prepare_gemm_w8a8(*device_, params(DType::kInt8));
  ASSERT_TRUE(op);
  EXPECT_EQ((*op)->candidates()[0].backend, libraries[0]);
}

// A decode step has one row of activations for each sequence.
TEST_F(KernelsCudaProducts, AnyNumberOfRowsInFp8) {
  open();
  const auto params = [](int64_t m, int64_t n, int64_t k) {
    return ops::params_of({{"m", m}, {"n", n}, {"k", k}}, DType::kFp8);
  };
  for (const int64_t m : {1, 7, 33}) EXPECT_EQ(all_pass(prepare_gemm, params(m, 32, 48)), 6U) << m;
  EXPECT_FALSE(gemm_unsupported(device_->identity(), params(1, 32, 48)).has_value());
  EXPECT_EQ(gemm_unsupported(device_->identity(), params(1, 40, 48)), "fp8 products need multiples of 16, n is 40");
  EXPECT_EQ(gemm_unsupported(device_->identity(), params(1, 32, 24)), "fp8 products need multiples of 16, k is 24");
}

TEST_F(KernelsCudaProducts, Fp4InBlocks) {
  script_->cc_major = 10;
  script_->cublaslt_version = 120905;
  open();
  // Rows beyond one tile of factors, and a last tile that is not full.
  EXPECT_EQ(all_pass(prepare_gemm, ops::params_of({{"m", 136}, {"n", 160}, {"k", 96}}, DType::kFp4)), 3U);
  EXPECT_EQ(block_scale_bytes(136, 96), 256U * 8);
  EXPECT_EQ(block_scale_bytes(128, 64), 128U * 4);
}

TEST_F(KernelsCudaProducts, Fp4NeedsALibraryThatHasIt) {
  script_->cc_major = 10;
  script_->cublaslt_version = 120600;
  open();
  EXPECT_TRUE(device::cuda::holds(refused(prepare_gemm, ops::params_of({{"m", 16}, {"n", 32}, {"k", 64}}, DType::kFp4)),
                                  "fp4 products need cuBLASLt 12.8"));
}

TEST_F(KernelsCudaProducts, OlderLibrariesDoNotScaleRows) {
  open();
  EXPECT_EQ(all_pass(prepare_gemm_w8a8, ops::params_of({{"m", 48}, {"n", 32}, {"k", 80}}, DType::kFp8)), 3U);
}

TEST_F(KernelsCudaProducts, Groups) {
  open();
  for (const DType dtype : {DType::kBf16, DType::kFp16})
    for (const char* variant : {"even", "skewed"})
      EXPECT_EQ(all_pass(prepare_gemm_grouped,
                         ops::params_of({{"rows", 41}, {"groups", 6}, {"n", 24}, {"k", 40}}, dtype, variant)),
                2U);
  EXPECT_EQ(all_pass(prepare_gemm_grouped,
                     ops::params_of({{"rows", 3}, {"groups", 8}, {"n", 24}, {"k", 40}}, DType::kBf16, "even")),
            2U);
  for (const char* variant : {"even", "skewed"})
    EXPECT_EQ(all_pass(prepare_gemm_grouped,
                       ops::params_of({{"rows", 41}, {"groups", 6}, {"n", 32}, {"k", 48}}, DType::kFp8, variant)),
              1U)
        << "one by one";
}

TEST_F(KernelsCudaProducts, RoutingOfTokens) {
  open();
  const auto params = [](DType dtype, int64_t tokens, int64_t experts, int64_t k) {
    return ops::params_of({{"tokens", tokens}, {"experts", experts}, {"k", k}}, dtype);
  };
  // Twice: what is counted is zero again behind it.
  EXPECT_EQ(all_pass(prepare_moe_routing, params(DType::kBf16, 67, 100, 4), 2), 2U);
  EXPECT_EQ(all_pass(prepare_moe_routing, params(DType::kFp16, 1, 8, 2)), 2U);
  EXPECT_EQ(all_pass(prepare_moe_routing, params(DType::kFp32, 5, 3, 3)), 2U);
  EXPECT_EQ(all_pass(prepare_moe_routing, params(DType::kBf16, 9, 600, 8)), 2U);
  // More slots than one block puts in order.
  Result<std::unique_ptr<PreparedOp>> many = prepare_moe_routing(*device_, params(DType::kBf16, 1100, 32, 8));
  ASSERT_TRUE(many) << many.error().text();
  EXPECT_EQ((*many)->candidates().size(), 1U);
  EXPECT_EQ((*many)->check(0)->status, CheckStatus::kPassed);
}

TEST_F(KernelsCudaProducts, GroupsWithoutCublasGoOneByOne) {
  setenv(nvidia::kEnvCublas, "/nowhere/libcublas.so", 1);
  open();
  EXPECT_EQ(all_pass(prepare_gemm_grouped,
                     ops::params_of({{"rows", 16}, {"groups", 2}, {"n", 24}, {"k", 40}}, DType::kBf16, "even")),
            1U);
}

}  // namespace
}  // namespace llmprof::kernels::cuda
