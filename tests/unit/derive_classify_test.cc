#include <gtest/gtest.h>

#include "derive/derive.h"
#include "derive/kernel_rules.h"
#include "derive_recording.h"

namespace llmprof {
namespace {

// Category of a kernel that was launched outside every operator.
Category by_kernel(std::string_view name) {
  Recording r;
  r.gpu(0, 10, name, 0);
  link_launches(r.trace);
  classify_gpu_ops(r.trace);
  return r.trace.gpu_links.category[0];
}

// Category of a generic kernel below the given operators, outermost first; the inputs are the innermost one's.
Category by_operators(const std::vector<std::string_view>& operators, SignatureId (*inputs)(Recording&) = nullptr,
                      std::string_view kernel = "void at::native::vectorized_elementwise_kernel<4>(int)") {
  Recording r;
  const Row sig = inputs != nullptr ? inputs(r) : kNoRow;
  int64_t start = 0;
  for (size_t i = 0; i < operators.size(); ++i, start += 10) {
    r.op(start, 1000 - 2 * start, operators[i], 0, i + 1 == operators.size() ? sig : kNoRow);
  }
  r.call(start, 5, "cudaLaunchKernel", 1);
  r.gpu(start + 10, 10, kernel, 1);
  link_launches(r.trace);
  classify_gpu_ops(r.trace);
  return r.trace.gpu_links.category[0];
}

struct Named {
  Category category;
  std::string_view name;
};

// Names as profilers print them.
constexpr Named kKernels[] = {
    {Category::kGemm, "nvjet_sm90_tst_64x8_64x16_2x1_v_bz_splitK_TNT"},
    {Category::kGemm, "ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x3_tn"},
    {Category::kGemm, "sm80_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize64x64x64_stage6"},
    {Category::kGemm, "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x32_8x5_tn_align1>(Params)"},
    {Category::kGemm, "void gemv2T_kernel_val<int, int, __nv_bfloat16, __nv_bfloat16, float, 128, 16, 4, 4>(Params)"},
    {Category::kGemm, "void cublasLt::splitKreduce_kernel<32, 16, int, float, __nv_bfloat16>(Params)"},
    {Category::kGemm, "void marlin::Marlin<nv_bfloat16, 256, 1, 8, 8>(int4 const*, int4 const*, int4*)"},
    {Category::kGemm, "fused_moe_kernel"},
    {Category::kGemm, "_w8a8_block_fp8_matmul"},
    {Category::kAttention, "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x128"},
    {Category::kAttention, "void cudnn::fusion::lean_reduction_kernel<false, false, false>(void*, float*)"},
    {Category::kAttention, "void pytorch_flash::flash_fwd_splitkv_kernel<pytorch_flash::Flash_fwd_kernel_traits>()"},
    {Category::kAttention, "void flash::flash_fwd_splitkv_combine_kernel<Flash_fwd_kernel_traits<128, 64>>(Params)"},
    {Category::kAttention, "void cutlass::device_kernel<flash::enable_sm90<flash::FlashAttnFwdSm90<flash::Coll>>>()"},
    {Category::kAttention, "fmha_cutlassF_bf16_aligned_64x128_rf_sm80(PyTorchMemEffAttention::AttentionKernel)"},
    {Category::kAttention, "void flashinfer::BatchDecodeWithPagedKVCacheKernel<(flashinfer::PosEncodingMode)0>()"},
    {Category::kAttention, "void flashinfer::BatchPrefillWithPagedKVCacheKernel<flashinfer::KernelTraits>()"},
    {Category::kAttention, "void flashinfer::SinglePrefillWithKVCacheKernel<flashinfer::KernelTraits>()"},
    {Category::kAttention, "void vllm::paged_attention_v2_kernel<__nv_bfloat16, __nv_bfloat16, 128, 16, 128>()"},
    {Category::kAttention, "kernel_unified_attention_2d"},
    {Category::kAttention, "void tensorrt_llm::kernels::mmha::masked_multihead_attention_kernel<uint16_t>()"},
    {Category::kAttention, "fmha_v2_flash_attention_bf16_64_128_S_qkv_128_causal_tma_ws_sm90_kernel"},
    {Category::kAttention, "triton_tem_fused_flex_attention_0"},
    {Category::kNorm, "void vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>(c10::BFloat16*)"},
    {Category::kNorm, "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float>()"},
    {Category::kNorm, "triton_red_fused__to_copy_add_mean_mul_pow_rsqrt_0"},
    {Category::kNorm,
     "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float>>>"},
    {Category::kRope, "void vllm::rotary_embedding_kernel<c10::BFloat16, true>(long const*)"},
    {Category::kRope, "void flashinfer::BatchQKApplyRotaryPosIdsCosSinCacheKernel<true, 128u>()"},
    {Category::kRope, "triton_poi_fused_add_cat_cos_mul_neg_sin_2"},
    {Category::kActivation, "void vllm::act_and_mul_kernel<c10::BFloat16, &vllm::silu_kernel<c10::BFloat16>>()"},
    {Category::kActivation, "void at::native::vectorized_elementwise_kernel<4, at::native::GeluCUDAKernelImpl()>"},
    {Category::kActivation, "triton_poi_fused_mul_silu_3"},
    {Category::kSoftmax, "void (anonymous namespace)::softmax_warp_forward<float, float, float, 9, false>()"},
    {Category::kSoftmax, "triton_per_fused__softmax_1"},
    {Category::kElementwise, "void at::native::vectorized_elementwise_kernel<8, at::native::CUDAFunctor_add<float>>()"},
    {Category::kElementwise, "triton_poi_fused_add_0"},
    {Category::kEmbedding, "void at::native::(anonymous namespace)::indexSelectSmallIndex<c10::BFloat16, long>()"},
    {Category::kEmbedding, "void at::native::vectorized_gather_kernel<16, long>(char*, char*, long*, int)"},
    {Category::kKvCache, "void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16, __nv_bfloat16>()"},
    {Category::kKvCache, "void tensorrt_llm::kernels::applyBiasRopeUpdateKVCacheV2<__nv_bfloat16>()"},
    {Category::kKvCache, "void at::native::index_elementwise_kernel<128, 4, at::native::index_copy_kernel_impl<>>"},
    {Category::kSampling, "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::ArgMaxOps>>"},
    {Category::kSampling, "void flashinfer::sampling::TopPSamplingFromProbKernel<1024u>()"},
    {Category::kSampling, "void at::native::sbtopk::gatherTopK<float, unsigned int, 2, false>()"},
    {Category::kMoeRouting, "void vllm::moe::topkGatingSoftmax<8, 128, 4, 16, int>(float const*)"},
    {Category::kMoeRouting, "void vllm::moe::moe_align_block_size_kernel<int>(int*)"},
    {Category::kQuantize, "void vllm::scaled_fp8_quant_kernel<c10::BFloat16>(c10::Float8_e4m3fn*)"},
    {Category::kQuantize, "void vllm::awq::dequantize_weights(int*, half*)"},
    {Category::kQuantize, "void per_token_group_quant_8bit_kernel<c10::BFloat16, c10::Float8_e4m3fn>()"},
    {Category::kConvolution, "sm80_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x64x64"},
    {Category::kConvolution, "void implicit_convolve_sgemm<float, float, 128, 5, 5, 3, 3, 3, 1, false>()"},
    {Category::kCommunication, "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"},
    {Category::kCommunication, "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*)"},
    {Category::kCopy, "void at::native::elementwise_kernel<128, 4, at::native::direct_copy_kernel_cuda()>"},
    // llmprof's own, of its reference workload.
    {Category::kAttention, "attention"},
    {Category::kRope, "rotary_positions"},
    {Category::kKvCache, "store_kv_cache"},
    {Category::kNorm, "rmsnorm_residual"},
    {Category::kNorm, "layernorm"},
    {Category::kActivation, "swiglu"},
    {Category::kSampling, "sample_greedy"},
    {Category::kEmbedding, "gather"},
    {Category::kElementwise, "add_into"},
    {Category::kOther, "my_company_kernel_v3"},
    {Category::kOther, "my_gather"},
    {Category::kOther, "add_into_v2"},
    {Category::kOther, "void selective_scan_fwd_kernel<Selective_Scan_fwd_kernel_traits<128>>()"},
};

TEST(Classify, KernelNamesOfTheFieldHaveTheirCategory) {
  std::bitset<static_cast<size_t>(Category::kCount)> covered;
  for (const Named& kernel : kKernels) {
    EXPECT_EQ(category_name(by_kernel(kernel.name)), category_name(kernel.category)) << kernel.name;
    covered.set(static_cast<size_t>(kernel.category));
  }
  EXPECT_TRUE(covered.all()) << "a category has no kernel in this test";
}

TEST(Classify, GenericKernelsTakeTheirMeaningFromTheOperator) {
  EXPECT_EQ(by_operators({"aten::softmax", "aten::_softmax"}), Category::kSoftmax);
  EXPECT_EQ(by_operators({"aten::layer_norm", "aten::native_layer_norm"}), Category::kNorm);
  EXPECT_EQ(by_operators({"aten::rms_norm"}), Category::kNorm);
  EXPECT_EQ(by_operators({"aten::rsqrt"}), Category::kNorm);
  EXPECT_EQ(by_operators({"aten::neg"}), Category::kRope);
  EXPECT_EQ(by_operators({"aten::silu"}), Category::kActivation);
  EXPECT_EQ(by_operators({"aten::embedding", "aten::index_select"}), Category::kEmbedding);
  EXPECT_EQ(by_operators({"aten::index_copy_"}), Category::kKvCache);
  EXPECT_EQ(by_operators({"aten::slice_scatter", "aten::copy_"}), Category::kKvCache);
  EXPECT_EQ(by_operators({"aten::argmax"}), Category::kSampling);
  EXPECT_EQ(by_operators({"aten::scaled_dot_product_attention", "aten::mul"}), Category::kAttention);
  EXPECT_EQ(by_operators({"aten::add"}), Category::kElementwise);
}

TEST(Classify, ShapesTellWhatGenericOperatorsAreFor) {
  constexpr std::string_view kCat = "void at::native::CatArrayBatchedCopy<OpaqueType<2u>, unsigned int, 4, 64, 64>()";
  const auto grows = [](Recording& r) {
    return r.signature("[[[1, 8, 512, 128], [1, 8, 1, 128]], []]", R"(["TensorList", "Scalar"])", R"(["", "-2"])");
  };
  const auto starts = [](Recording& r) {
    return r.signature("[[[0], [1, 8, 512, 128]], []]", R"(["TensorList", "Scalar"])", R"(["", "-2"])");
  };
  const auto halves = [](Recording& r) {
    return r.signature("[[[1, 32, 512, 64], [1, 32, 512, 64]], []]", R"(["TensorList", "Scalar"])", R"(["", "-1"])");
  };
  const auto other = [](Recording& r) {
    return r.signature("[[[5, 7], [6, 7]], []]", R"(["TensorList", "Scalar"])", R"(["", "0"])");
  };
  EXPECT_EQ(by_operators({"aten::cat"}, grows, kCat), Category::kKvCache);
  EXPECT_EQ(by_operators({"aten::cat"}, starts, kCat), Category::kKvCache);
  EXPECT_EQ(by_operators({"aten::cat"}, halves, kCat), Category::kRope);
  EXPECT_EQ(by_operators({"aten::cat"}, other, kCat), Category::kCopy);

  EXPECT_EQ(by_operators({"aten::mul"}, [](Recording& r) { return r.signature("[[1, 512, 4096], [1, 512, 1]]"); }),
            Category::kNorm);
  EXPECT_EQ(by_operators({"aten::mul"}, [](Recording& r) { return r.signature("[[4096], [1, 512, 4096]]"); }),
            Category::kNorm);
  EXPECT_EQ(by_operators({"aten::mul"}, [](Recording& r) { return r.signature("[[1, 32, 9, 128], [1, 1, 9, 128]]"); }),
            Category::kRope);
  EXPECT_EQ(by_operators({"aten::mul"}, [](Recording& r) { return r.signature("[[1, 512, 14336], [1, 512, 14336]]"); }),
            Category::kElementwise);
  EXPECT_EQ(by_operators({"aten::topk"}, [](Recording& r) { return r.signature("[[512, 128], [], [], [], []]"); }),
            Category::kMoeRouting);
  EXPECT_EQ(by_operators({"aten::topk"}, [](Recording& r) { return r.signature("[[1, 128256], [], [], [], []]"); }),
            Category::kSampling);
}

TEST(Classify, CopiesAndMemsetsAreCopiesWhateverLaunchedThem) {
  Recording r;
  r.op(0, 100, "aten::_cudnn_attention_forward");
  r.call(10, 5, "cudaMemsetAsync", 1);
  r.gpu(20, 5, "Memset (Device)", 1, 0, GpuOpKind::kMemset);
  r.gpu(30, 5, "Memcpy HtoD (Pinned -> Device)", 2, 0, GpuOpKind::kMemcpy);
  link_launches(r.trace);
  classify_gpu_ops(r.trace);
  EXPECT_EQ(r.trace.gpu_links.category[0], Category::kCopy);
  EXPECT_EQ(r.trace.gpu_links.category[1], Category::kCopy);
}

TEST(Classify, TimeThatNoRuleNamesIsReported) {
  Recording r;
  r.gpu(0, 30, "nvjet_sm90", 0);
  r.gpu(100, 5, "unheard_of", 0);
  r.gpu(200, 5, "unheard_of", 0);
  r.gpu(300, 1, "also_unknown", 0);
  link_launches(r.trace);
  classify_gpu_ops(r.trace);
  const UnnamedTime unnamed = unnamed_gpu_time(r.trace, 1);
  EXPECT_EQ(unnamed.total_ns, 41);
  EXPECT_EQ(unnamed.unnamed_ns, 11);
  EXPECT_DOUBLE_EQ(unnamed.unnamed_frac, 11.0 / 41.0);
  ASSERT_EQ(unnamed.top.size(), 1U);
  EXPECT_EQ(r.trace.text(unnamed.top[0].name), "unheard_of");
  EXPECT_EQ(unnamed.top[0].time_ns, 10);
  EXPECT_EQ(unnamed.top[0].count, 2);
}

TEST(Classify, DeepNestingIsBounded) {
  Recording r;
  constexpr int kDepth = 20000;
  r.op(0, 4 * kDepth, "aten::softmax");
  for (int i = 1; i < kDepth; ++i) r.op(i, 4 * kDepth - 2 * i, i % 2 == 0 ? "aten::add" : "aten::sub");
  r.call(kDepth, 5, "cudaLaunchKernel", 1);
  r.gpu(kDepth + 10, 10, "void at::native::vectorized_elementwise_kernel<4>()", 1);
  link_launches(r.trace);
  classify_gpu_ops(r.trace);
  attach_work(r.trace);
  EXPECT_EQ(r.trace.gpu_links.category[0], Category::kElementwise);  // the softmax is too far out to matter
}

TEST(KernelRules, PatternsAnchorSplitAndSkip) {
  EXPECT_TRUE(fits("", "anything"));
  EXPECT_TRUE(fits("^ab", "abc"));
  EXPECT_FALSE(fits("^bc", "abc"));
  EXPECT_TRUE(fits("bc$", "abc"));
  EXPECT_FALSE(fits("ab$", "abc"));
  EXPECT_TRUE(fits("^abc$", "abc"));
  EXPECT_FALSE(fits("^abc$", "abcabc"));
  EXPECT_TRUE(fits("^a*c$", "abcxc"));
  EXPECT_FALSE(fits("a*a", "a"));
  EXPECT_TRUE(fits("x|b", "abc"));
  EXPECT_FALSE(fits("x|y", "abc"));
  EXPECT_FALSE(fits("c*b", "abc"));
}

TEST(KernelRules, EveryRuleCanBeReachedAndSaysWhy) {
  for (const KernelRule& rule : kernel_rules()) {
    EXPECT_NE(rule.category, Category::kOther);
    EXPECT_FALSE(rule.why.empty());
    EXPECT_FALSE(rule.kernel.empty() && rule.operators.empty()) << rule.why;
    for (const char c : rule.kernel) EXPECT_FALSE(c >= 'A' && c <= 'Z') << rule.kernel;
    for (const char c : rule.operators) EXPECT_FALSE(c >= 'A' && c <= 'Z') << rule.operators;
  }
}

}  // namespace
}  // namespace llmprof
