#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "derive/derive.h"
#include "derive/kernel_rules.h"
#include "derive/op_rules.h"
#include "derive/work_formulas.h"
#include "derive_recording.h"

namespace llmprof {
namespace {

constexpr std::string_view kGemmKernel = "nvjet_sm90_tst_64x8_64x16_2x1_v_bz_splitK_TNT";
constexpr std::string_view kSplitSum = "void cublasLt::splitKreduce_kernel<32, 16, int, float>()";
constexpr std::string_view kTypes2 = R"(["c10::BFloat16", "c10::BFloat16"])";

void derive_work(Trace& trace) {
  link_launches(trace);
  classify_gpu_ops(trace);
  attach_work(trace);
}

// The formula for one operator call; a failed expectation if its outcome is not the expected one.
WorkShape work_of(std::string_view op, std::string_view dims, std::string_view types, std::string_view concrete = "[]",
                  std::string_view strides = {}, WorkOutcome expected = WorkOutcome::kWork) {
  WorkShape work;
  const OpRule* const rule = find_op_rule(op);
  EXPECT_NE(rule, nullptr) << op;
  Recording r;
  const SignatureShapes shapes(r.trace, r.signature(dims, types, concrete, strides));
  EXPECT_TRUE(shapes.readable()) << dims;
  if (rule == nullptr) return work;
  EXPECT_EQ(compute_work(*rule, shapes, {}, work), expected) << op << " " << dims;
  return work;
}

TEST(Formulas, Gemm) {
  const WorkShape mm = work_of("aten::mm", "[[512, 4096], [4096, 1024]]", kTypes2);
  EXPECT_EQ(mm.kind, WorkKind::kGemm);
  EXPECT_EQ(mm.flops, 2.0 * 512 * 4096 * 1024);
  EXPECT_EQ(mm.bytes, 2.0 * (512 * 4096 + 4096 * 1024 + 512 * 1024));
  EXPECT_EQ(mm.weight_bytes, 2.0 * 4096 * 1024);
  EXPECT_EQ(shape_text(mm), "M512 N1024 K4096");

  const WorkShape addmm = work_of("aten::addmm", "[[896], [5, 64], [64, 896], [], []]",
                                  R"(["float", "float", "float", "Scalar", "Scalar"])");
  EXPECT_EQ(addmm.flops, 2.0 * 5 * 64 * 896);
  EXPECT_EQ(addmm.bytes, 4.0 * (896 + 5 * 64 + 64 * 896 + 5 * 896));

  const WorkShape linear = work_of("aten::linear", "[[2, 7, 64], [32, 64], []]", R"(["c10::Half", "c10::Half", ""])");
  EXPECT_EQ(linear.m, 14);
  EXPECT_EQ(linear.n, 32);
  EXPECT_EQ(linear.k, 64);

  const WorkShape bmm = work_of("aten::bmm", "[[8, 3, 5], [8, 5, 7]]", kTypes2);
  EXPECT_EQ(bmm.flops, 2.0 * 8 * 3 * 5 * 7);
  EXPECT_EQ(bmm.weight_bytes, 0);
  EXPECT_EQ(shape_text(bmm), "B8 M3 N7 K5");

  const WorkShape matmul = work_of("aten::matmul", "[[4, 1, 3, 5], [6, 5, 7]]", kTypes2);
  EXPECT_EQ(matmul.flops, 2.0 * 4 * 6 * 3 * 5 * 7);
  EXPECT_EQ(work_of("aten::matmul", "[[5], [5]]", kTypes2).flops, 10);

  // FP8 with a bfloat16 result (ScalarType 15).
  const WorkShape fp8 =
      work_of("aten::_scaled_mm", "[[16, 64], [64, 32], [], [], [], [], [], []]",
              R"(["c10::Float8_e4m3fn", "c10::Float8_e4m3fn", "float", "float", "", "", "Scalar", "Scalar"])",
              R"(["", "", "", "", "", "", "15", "True"])");
  EXPECT_EQ(fp8.dtype, DType::kFp8);
  EXPECT_EQ(fp8.bytes, 16.0 * 64 + 64 * 32 + 2 * 16 * 32);

  // 4-bit weights [n/8, k/(inner*16), 32, inner/2] in 32-bit words: n = 64, k = 256, inner = 8.
  const WorkShape int4 = work_of("aten::_weight_int4pack_mm", "[[3, 256], [8, 2, 32, 4], [], [2, 64, 2]]",
                                 R"(["c10::BFloat16", "int", "Scalar", "c10::BFloat16"])");
  EXPECT_EQ(int4.n, 64);
  EXPECT_EQ(int4.weight_bytes, 64 * 256 * 0.5);
  EXPECT_EQ(int4.flops, 2.0 * 3 * 64 * 256);

  const WorkShape grouped = work_of("aten::_grouped_mm", "[[4, 64], [128, 64, 32], [128], [], []]",
                                    R"(["c10::BFloat16", "c10::BFloat16", "int", "", ""])");
  EXPECT_EQ(grouped.flops, 2.0 * 4 * 64 * 32);
  EXPECT_EQ(grouped.weight_bytes, 4 * 64 * 32 * 2.0);  // four rows meet at most four experts

  work_of("aten::mm", "[[512, 4096], [4095, 1024]]", kTypes2, "[]", {}, WorkOutcome::kBadShape);
  work_of("aten::mm", "[[512], [512]]", kTypes2, "[]", {}, WorkOutcome::kBadShape);
  EXPECT_TRUE(std::isnan(work_of("aten::mm", "[[2, 2], [2, 2]]", "").bytes));  // element types not recorded
}

TEST(Formulas, AttentionOfLlamaPrefillAndDecode) {
  constexpr std::string_view kTypes =
      R"(["c10::BFloat16", "c10::BFloat16", "c10::BFloat16", "", "Scalar", "Scalar", "Scalar", "Scalar"])";
  const WorkShape prefill = work_of("aten::scaled_dot_product_attention",
                                    "[[1, 32, 512, 128], [1, 8, 512, 128], [1, 8, 512, 128], [], [], [], [], []]",
                                    kTypes, R"(["", "", "", "", "0.", "True", "0.08", "True"])");
  EXPECT_EQ(prefill.flops, 4.0 * 32 * 128 * (512 * 513 / 2));
  EXPECT_EQ(prefill.flops * 32, 68853694464.0);  // 32 layers of Llama-3.1-8B
  EXPECT_EQ(prefill.flops_full, 4.0 * 32 * 128 * 512 * 512);
  EXPECT_EQ(prefill.kv_bytes, 2.0 * 2 * 8 * 512 * 128);
  EXPECT_EQ(prefill.bytes, prefill.kv_bytes + 2.0 * 2 * 32 * 512 * 128);
  EXPECT_EQ(shape_text(prefill), "B1 H32/8 Q512 KV512 D128 causal");

  const WorkShape decode = work_of("aten::scaled_dot_product_attention",
                                   "[[1, 32, 1, 128], [1, 8, 513, 128], [1, 8, 513, 128], [], [], [], [], []]", kTypes,
                                   R"(["", "", "", "", "0.", "False", "0.08", "True"])");
  EXPECT_EQ(decode.flops, 4.0 * 32 * 128 * 513);
  EXPECT_EQ(decode.flops_full, decode.flops);
}

TEST(Formulas, AttentionVariants) {
  constexpr std::string_view kTypes3 = R"(["c10::Half", "c10::Half", "c10::Half", "", "", "", ""])";
  // New queries after a prefix.
  const WorkShape chunk = work_of("aten::_scaled_dot_product_flash_attention",
                                  "[[2, 4, 10, 64], [2, 4, 30, 64], [2, 4, 30, 64], [], [], [], []]", kTypes3,
                                  R"(["", "", "", "0.", "True", "False", ""])");
  EXPECT_EQ(chunk.flops, 4.0 * 2 * 4 * 64 * (10 * 20 + 55));
  // Values of another size than keys (MLA).
  const WorkShape mla = work_of("aten::_scaled_dot_product_flash_attention",
                                "[[1, 2, 3, 192], [1, 2, 3, 192], [1, 2, 3, 128], [], [], [], []]", kTypes3,
                                R"(["", "", "", "0.", "False", "False", ""])");
  EXPECT_EQ(mla.flops, 2.0 * 2 * (192 + 128) * 9);
  // A mask tensor: every pair counts, the mask is read.
  const WorkShape masked = work_of("aten::_scaled_dot_product_efficient_attention",
                                   "[[1, 2, 3, 8], [1, 2, 5, 8], [1, 2, 5, 8], [1, 1, 3, 5], [], [], []]",
                                   R"(["c10::Half", "c10::Half", "c10::Half", "c10::Half", "", "", ""])",
                                   R"(["", "", "", "", "False", "0.", "False"])");
  EXPECT_EQ(masked.flops, 4.0 * 2 * 8 * 15);
  EXPECT_EQ(masked.bytes, 2.0 * (2 * 2 * 3 * 8 + 2 * 2 * 5 * 8 + 15));
  // Tokens before heads, and a window of 4 keys to the left.
  const WorkShape window =
      work_of("flash_attn::_flash_attn_forward", "[[1, 6, 4, 16], [1, 6, 2, 16], [1, 6, 2, 16], [], [], [], []]",
              kTypes3, R"(["", "", "", "0.", "0.25", "True", "3"])");
  EXPECT_EQ(window.heads, 4);
  EXPECT_EQ(window.kv_heads, 2);
  EXPECT_EQ(window.flops, 4.0 * 4 * 16 * (1 + 2 + 3 + 4 + 4 + 4));
  // Packed sequences: equal lengths are known, others are not.
  constexpr std::string_view kPackedTypes =
      R"(["c10::Half", "c10::Half", "c10::Half", "int", "int", "Scalar", "Scalar", "Scalar", "Scalar", "Scalar"])";
  const WorkShape packed = work_of("flash_attn::_flash_attn_varlen_forward",
                                   "[[12, 4, 16], [12, 4, 16], [12, 4, 16], [4], [4], [], [], [], [], []]",
                                   kPackedTypes, R"(["", "", "", "", "", "4", "4", "0.", "0.25", "True"])");
  EXPECT_EQ(packed.batch, 3);
  EXPECT_EQ(packed.flops, 3 * 4.0 * 4 * 16 * 10);
  work_of("flash_attn::_flash_attn_varlen_forward",
          "[[12, 4, 16], [12, 4, 16], [12, 4, 16], [4], [4], [], [], [], [], []]", kPackedTypes,
          R"(["", "", "", "", "", "7", "7", "0.", "0.25", "True"])", {}, WorkOutcome::kUnknown);
  work_of("vllm::unified_attention_with_output", "[[12, 512]]", R"(["c10::Half"])", "[]", {}, WorkOutcome::kUnknown);
  work_of("aten::scaled_dot_product_attention", "[[1, 32, 1, 128], [1, 7, 5, 128], [1, 7, 5, 128]]", "", "[]", {},
          WorkOutcome::kBadShape);
}

TEST(Formulas, Convolution) {
  // The patch embedding of a ViT: 224x224 pixels, 14x14 patches.
  const WorkShape patch = work_of(
      "aten::cudnn_convolution", "[[2, 3, 224, 224], [1152, 3, 14, 14], [], [], [], [], [], [], []]",
      R"(["c10::BFloat16", "c10::BFloat16", "ScalarList", "ScalarList", "ScalarList", "Scalar", "Scalar", "Scalar", "Scalar"])",
      R"(["", "", "[0, 0]", "[14, 14]", "[1, 1]", "1", "False", "False", "True"])");
  EXPECT_EQ(patch.m, 2 * 16 * 16);
  EXPECT_EQ(patch.n, 1152);
  EXPECT_EQ(patch.k, 3 * 14 * 14);
  EXPECT_EQ(patch.flops, 2.0 * (2 * 16 * 16) * 1152 * (3 * 14 * 14));
  // Depthwise: groups leave one input channel per filter. Padding keeps the length.
  const WorkShape depthwise = work_of("aten::conv1d", "[[1, 64, 100], [64, 1, 3], [], [], [], [], []]",
                                      R"(["float", "float", "", "ScalarList", "ScalarList", "ScalarList", "Scalar"])",
                                      R"(["", "", "", "[1]", "[1]", "[1]", "64"])");
  EXPECT_EQ(depthwise.flops, 2.0 * 100 * 64 * 3);
}

TEST(Formulas, TrafficOfTheRest) {
  const WorkShape mul = work_of("aten::mul", "[[1, 4, 8], [1, 4, 1]]", R"(["float", "float"])");
  EXPECT_EQ(mul.bytes, 4.0 * (32 + 4 + 32));
  EXPECT_EQ(mul.flops, 32);
  const WorkShape mixed = work_of("aten::add", "[[8], [8], []]", R"(["c10::BFloat16", "float", "Scalar"])");
  EXPECT_EQ(mixed.bytes, 8.0 * (2 + 4 + 4));
  const WorkShape cast = work_of("aten::copy_", "[[6], [6], []]", R"(["float", "c10::BFloat16", "Scalar"])");
  EXPECT_EQ(cast.bytes, 6.0 * (4 + 2));
  EXPECT_EQ(cast.flops, 0);
  const WorkShape mean = work_of("aten::mean", "[[1, 4, 8], [], [], []]", R"(["float", "ScalarList", "Scalar", ""])",
                                 R"(["", "[-1]", "True", ""])");
  EXPECT_EQ(mean.bytes, 4.0 * (32 + 4));
  const WorkShape rows = work_of("aten::index_select", "[[128256, 4096], [], [512]]",
                                 R"(["c10::BFloat16", "Scalar", "long int"])", R"(["", "0", ""])");
  EXPECT_EQ(rows.kind, WorkKind::kGather);
  EXPECT_EQ(rows.bytes, 2.0 * 2 * 512 * 4096 + 8 * 512);
  const WorkShape gathered = work_of("aten::gather", "[[128256, 4096], [], [512, 4096], [], [512, 4096]]",
                                     R"(["c10::BFloat16", "Scalar", "long int", "Scalar", "c10::BFloat16"])",
                                     R"(["", "0", "", "False", ""])", "[[4096, 1], [], [1, 0], [], [4096, 1]]");
  EXPECT_EQ(gathered.bytes, rows.bytes);
  const WorkShape cache = work_of("aten::index_copy_", "[[1, 8, 1000, 64], [], [2], [1, 8, 2, 64]]",
                                  R"(["c10::Half", "Scalar", "long int", "c10::Half"])", R"(["", "2", "", ""])");
  EXPECT_EQ(cache.bytes, 2.0 * 2 * 8 * 2 * 64);  // not the whole cache
  work_of("aten::add", "[[3], [4]]", R"(["float", "float"])", "[]", {}, WorkOutcome::kBadShape);
}

TEST(Work, OneKernelOfAnOperatorCarriesItsWork) {
  Recording r;
  const Row sig = r.signature("[[1, 4096], [4096, 1024]]", kTypes2);
  r.launch("aten::mm", sig, {kGemmKernel, kSplitSum}, {100, 5000});  // the sum of the parts took longer
  const Row bf16 = r.signature("[[1, 2, 1, 64], [1, 2, 9, 64], [1, 2, 9, 64]]",
                               R"(["c10::BFloat16", "c10::BFloat16", "c10::BFloat16"])");
  r.launch("aten::_cudnn_attention_forward", bf16,
           {"cudnn_generated_fort_native_sdpa_sm80_flash_fprop", "void cudnn::fusion::lean_reduction_kernel<false>()"},
           {100, 900});
  derive_work(r.trace);
  EXPECT_NE(r.trace.gpu_links.work[0], kNoRow);
  EXPECT_EQ(r.trace.gpu_links.work[1], kNoRow);
  EXPECT_NE(r.trace.gpu_links.work[2], kNoRow);
  EXPECT_EQ(r.trace.gpu_links.work[3], kNoRow);
  EXPECT_EQ(r.trace.works.kind[r.trace.gpu_links.work[2]], WorkKind::kAttention);
}

TEST(Work, WrappersHaveNoWorkOfTheirOwn) {
  Recording r;
  const Row outer = r.signature("[[1, 9, 64], [32, 64], []]", R"(["float", "float", ""])");
  const Row inner = r.signature("[[9, 64], [64, 32]]", R"(["float", "float"])");
  r.op(0, 1000, "aten::linear", 0, outer);
  r.op(10, 300, "aten::mm", 0, inner);
  r.call(20, 5, "cudaLaunchKernel", 1);
  r.call(500, 5, "cudaLaunchKernel", 2);  // launched by aten::linear itself
  r.gpu(600, 10, kGemmKernel, 1);
  r.gpu(700, 10, "void at::native::vectorized_elementwise_kernel<4>()", 2);
  derive_work(r.trace);
  EXPECT_NE(r.trace.gpu_links.work[0], kNoRow);
  EXPECT_EQ(r.trace.gpu_links.work[1], kNoRow);
  // Without a recorded aten::mm the wrapper counts.
  Recording bare;
  const Row sig = bare.signature("[[1, 9, 64], [32, 64], []]", R"(["float", "float", ""])");
  bare.launch("aten::linear", sig, {kGemmKernel});
  derive_work(bare.trace);
  ASSERT_NE(bare.trace.gpu_links.work[0], kNoRow);
  EXPECT_EQ(bare.trace.works.flops[0], 2.0 * 9 * 64 * 32);
}

TEST(Work, SumsOverKernelsEqualSumsOverOperators) {
  Recording r;
  double expected_flops = 0, expected_bytes = 0;
  const auto add = [&](std::string_view op, std::string_view dims, std::string_view types, std::string_view concrete,
                       const std::vector<std::string_view>& kernels, int times) {
    const WorkShape work = work_of(op, dims, types, concrete);
    const Row sig = r.signature(dims, types, concrete);
    for (int i = 0; i < times; ++i) {
      r.launch(op, sig, kernels);
      expected_flops += work.flops;
      expected_bytes += work.bytes;
    }
  };
  add("aten::mm", "[[7, 64], [64, 96]]", kTypes2, "[]", {kGemmKernel, kSplitSum}, 10);
  add("aten::addmm", "[[96], [7, 64], [64, 96]]", R"(["float", "float", "float"])", "[]", {kGemmKernel}, 3);
  add("aten::scaled_dot_product_attention", "[[1, 4, 8, 16], [1, 2, 8, 16], [1, 2, 8, 16], [], [], []]",
      R"(["c10::Half", "c10::Half", "c10::Half", "", "Scalar", "Scalar"])", R"(["", "", "", "", "0.", "True"])",
      {"fmha_cutlassF_bf16_aligned", "void flash_fwd_splitkv_combine_kernel<>()"}, 5);
  add("aten::silu", "[[7, 96]]", R"(["c10::BFloat16"])", "[]", {"void vectorized_elementwise_kernel<4, silu>()"}, 4);
  add("aten::copy_", "[[7, 96], [7, 96]]", R"(["float", "c10::BFloat16"])", "[]", {"direct_copy_kernel_cuda"}, 4);
  derive_work(r.trace);
  double flops = 0, bytes = 0;
  size_t carriers = 0;
  for (const Row work : r.trace.gpu_links.work) {
    if (work == kNoRow) continue;
    ++carriers;
    flops += r.trace.works.flops[work];
    bytes += r.trace.works.bytes[work];
  }
  EXPECT_EQ(carriers, 26U);
  EXPECT_EQ(flops, expected_flops);
  EXPECT_EQ(bytes, expected_bytes);
  EXPECT_EQ(r.trace.works.size(), 5U);  // distinct shapes are stored once
}

TEST(Work, PiecesOfOnePassShareItsWork) {
  // 2 x 2^31 elements of 2 bytes: more than 32 bits count, so the framework launches the kernel for each half.
  Recording r;
  const Row sig = r.signature("[[2, 2147483648], []]", R"(["c10::BFloat16", "Scalar"])");
  constexpr std::string_view kFill = "void at::native::vectorized_elementwise_kernel<8, at::native::FillFunctor>()";
  r.launch("aten::fill_", sig, {kFill, kFill}, {100, 90});
  const Row small = r.signature("[[2, 1024], []]", R"(["c10::BFloat16", "Scalar"])");
  r.launch("aten::fill_", small, {kFill});
  derive_work(r.trace);
  const std::vector<WorkId>& work = r.trace.gpu_links.work;
  ASSERT_NE(work[0], kNoRow);
  EXPECT_EQ(work[0], work[1]);
  EXPECT_EQ(r.trace.works.bytes[work[0]], 2.0 * 2147483648);
  EXPECT_EQ(r.trace.text(r.trace.works.shape[work[0]]).substr(0, 7), "1/2 of ");
  ASSERT_NE(work[2], kNoRow);
  EXPECT_EQ(r.trace.works.bytes[work[2]], 2.0 * 2 * 1024);
}

TEST(Work, BadShapesAreCountedAndGiveNoWork) {
  Recording r;
  for (const std::string_view dims : {"[[-5, 64], [64, 96]]", "[[7, 64]]", "[[7, 64], [63, 96]]", "[[[[[[[", "[]",
                                      "[[9223372036854775807, 2], [2, 9223372036854775807]]"}) {
    r.launch("aten::mm", r.signature(dims), {kGemmKernel});
  }
  r.launch("aten::mm", r.signature(""), {kGemmKernel});  // shapes not recorded
  r.launch("aten::mm", kNoRow, {kGemmKernel});
  r.launch("aten::mm", 12345, {kGemmKernel});  // a row that does not exist
  derive_work(r.trace);
  for (const Row work : r.trace.gpu_links.work) EXPECT_EQ(work, kNoRow);
  EXPECT_EQ(r.trace.diagnostics.count(DiagnosticId::kBadShape), 5U);
  EXPECT_EQ(r.trace.works.size(), 0U);
}

TEST(Work, KernelNamesFillWhatTypesLeaveOpen) {
  Recording r;
  const Row cat = r.signature("[[[1, 8, 4, 16], [1, 8, 1, 16]], []]", R"(["TensorList", "Scalar"])", R"(["", "-2"])");
  r.launch("aten::cat", cat, {"void at::native::CatArrayBatchedCopy<OpaqueType<2u>, unsigned int, 4, 64, 64>()"});
  r.launch("aten::cat", cat, {"void at::native::CatArrayBatchedCopy<OpaqueType<4u>, unsigned int, 4, 64, 64>()"});
  r.launch("aten::cat", cat, {"some_other_cat"});
  const Row floats = r.signature("[[8, 8], [8, 8]]", R"(["float", "float"])");
  r.launch("aten::mm", floats, {"cutlass_80_tensorop_s1688gemm_128x64_16x6_nn_align4"});
  r.launch("aten::mm", floats, {"ampere_sgemm_128x64_nn"});
  derive_work(r.trace);
  const Works& works = r.trace.works;
  const std::vector<WorkId>& work = r.trace.gpu_links.work;
  EXPECT_EQ(works.bytes[work[0]], 2.0 * 2 * 8 * 5 * 16);
  EXPECT_EQ(works.bytes[work[1]], 2.0 * 4 * 8 * 5 * 16);
  EXPECT_TRUE(std::isnan(works.bytes[work[2]]));
  EXPECT_EQ(works.dtype[work[3]], DType::kTf32);
  EXPECT_EQ(works.dtype[work[4]], DType::kFp32);
}

TEST(Work, AJoinOfAListThatIsNotRecordedHasNoWork) {
  for (const std::string_view types : {"", R"(["TensorList", "Scalar"])"})
    work_of("aten::cat", "[[], []]", types, R"(["", "-2"])", {}, WorkOutcome::kUnknown);
}

TEST(Work, ACopyCallCarriesItsTrafficButNoMemsetCarriesAGemm) {
  Recording r;
  r.op(0, 100, "aten::copy_", 0, r.signature("[[6], [6], []]", R"(["float", "float", "Scalar"])"));
  r.call(10, 5, "cudaMemcpyAsync", 1);
  r.op(200, 100, "aten::mm", 0, r.signature("[[2, 2], [2, 2]]", R"(["float", "float"])"));
  r.call(210, 5, "cudaMemsetAsync", 2);
  r.gpu(20, 5, "Memcpy DtoD (Device -> Device)", 1, 0, GpuOpKind::kMemcpy);
  r.gpu(220, 5, "Memset (Device)", 2, 0, GpuOpKind::kMemset);
  derive_work(r.trace);
  EXPECT_NE(r.trace.gpu_links.work[0], kNoRow);
  EXPECT_EQ(r.trace.gpu_links.work[1], kNoRow);
}

TEST(OpRules, NamesAreDistinctAndFindThemselves) {
  std::set<std::string_view> names;
  for (const OpRule& rule : op_rules()) {
    EXPECT_TRUE(names.insert(rule.name).second) << rule.name;
    EXPECT_EQ(find_op_rule(rule.name), &rule) << rule.name;
    EXPECT_NE(op_rule_kind_name(rule.kind), "unknown");
  }
  EXPECT_EQ(find_op_rule("aten::mm_backward"), nullptr);
  ASSERT_NE(find_op_rule("vllm::unified_attention_with_output"), nullptr);
  EXPECT_TRUE(is_matrix_work(work_kind_of(find_op_rule("aten::mm")->kind)));
  EXPECT_FALSE(is_matrix_work(work_kind_of(find_op_rule("aten::mul")->kind)));
}

}  // namespace
}  // namespace llmprof
