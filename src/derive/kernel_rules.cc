#include "derive/kernel_rules.h"

#include <algorithm>
#include <iterator>
#include <optional>

namespace llmprof {
namespace {

using C = Category;
using F = InputFact;

// Order matters: communication and fused Triton kernels first, because their names quote other operations; attention
// before GEMM, because attention kernels are GEMMs too; kernels that say what they are before operators, because an
// operator like vllm::unified_attention launches cache writes as well; PyTorch's generic kernels last.
constexpr KernelRule kKernelRules[] = {
    // ---- communication
    {C::kCommunication, "nccl", "", F::kAny, "NCCL: ncclDevKernel_AllReduce_Sum_bf16_RING_LL"},
    {C::kCommunication, "cross_device_reduce|custom_all_reduce|one_shot_all_reduce|two_shot_all_reduce|multimem_all",
     "", F::kAny, "vLLM's custom all-reduce, PyTorch's symmetric memory"},
    {C::kCommunication, "allreduce|all_reduce|allgather|all_gather|reducescatter|reduce_scatter|alltoall|all_to_all",
     "", F::kAny, "collectives of TensorRT-LLM and FlashInfer, fused or not"},
    {C::kCommunication, "nvshmem|deep_ep|deepep", "", F::kAny, "NVSHMEM and DeepEP expert dispatch"},

    // ---- kernels that torch.compile names after the operations fused into them
    {C::kAttention, "^triton_*attention", "", F::kAny, "Inductor: triton_tem_fused_flex_attention_0"},
    {C::kGemm, "^triton_tem_", "", F::kAny, "Inductor's matrix multiply templates: triton_tem_fused_mm_3"},
    {C::kRope, "^triton_*cos*sin|^triton_*neg*cat|^triton_*cat*neg", "", F::kAny,
     "Inductor: triton_poi_fused_add_cat_mul_neg_cos_sin_2"},
    {C::kKvCache, "^triton_*index_copy|^triton_*index_put|^triton_*slice_scatter", "", F::kAny,
     "Inductor: triton_poi_fused_index_copy_5"},
    {C::kNorm, "^triton_*rsqrt|^triton_*layer_norm|^triton_*rms_norm", "", F::kAny,
     "Inductor: triton_red_fused__to_copy_add_mean_mul_pow_rsqrt_0"},
    {C::kSoftmax, "^triton_*softmax", "", F::kAny, "Inductor: triton_per_fused__softmax_1"},
    {C::kActivation, "^triton_*silu|^triton_*gelu|^triton_*relu|^triton_*sigmoid|^triton_*tanh", "", F::kAny,
     "Inductor: triton_poi_fused_mul_silu_3"},
    {C::kEmbedding, "^triton_*embedding", "", F::kAny, "Inductor: triton_poi_fused_embedding_0"},
    {C::kSampling, "^triton_*argmax|^triton_*topk|^triton_*exponential", "", F::kAny,
     "Inductor: triton_red_fused_argmax_9"},
    {C::kConvolution, "^triton_*conv", "", F::kAny, "Inductor: triton_poi_fused_convolution_2"},
    {C::kElementwise, "^triton_poi_|^triton_per_|^triton_red_|^triton_for_", "", F::kAny,
     "Inductor: other fused loops"},

    // ---- KV cache
    {C::kKvCache, "reshape_and_cache|concat_and_cache|copy_blocks|swap_blocks|gather_cache|cp_gather", "", F::kAny,
     "vLLM: reshape_and_cache_flash_kernel, concat_and_cache_mla_kernel"},
    {C::kKvCache, "appendpagedkv|append_paged_kv|set_kv_buffer|set_mla_kv|store_kvcache|store_kv_cache|storekvcache",
     "", F::kAny, "FlashInfer and SGLang: AppendPagedKVCacheKernel, set_mla_kv_buffer_kernel"},
    {C::kKvCache, "updatekvcache|update_kv_cache|kv_cache_copy|transposekvcache", "", F::kAny,
     "TensorRT-LLM: applyBiasRopeUpdateKVCache"},

    // ---- mixture of experts: routing before GEMM and softmax, whose words its names contain
    {C::kMoeRouting, "topkgating|topk_gating|topk_softmax|topksoftmax|topk_sigmoid|grouped_topk|moe_fused_gate", "",
     F::kAny, "vLLM: topkGatingSoftmax, grouped_topk_fused_kernel"},
    {C::kMoeRouting, "moe_align|moe_sum|moe_permute|moe_unpermute|expandinputrows|finalizemoerouting|moe_sort", "",
     F::kAny, "vLLM and TensorRT-LLM: moe_align_block_size_kernel, finalizeMoeRoutingKernel"},
    {C::kMoeRouting, "count_and_sort_expert|ep_scatter|ep_gather|expert_offset|expertfirsttoken|buildexpertmaps|router",
     "", F::kAny, "SGLang and TensorRT-LLM: tokens sorted by expert"},
    {C::kGemm, "fused_moe_kernel|moe_gemm|moefcgemm|moe_wna16|moe*gemm|grouped*gemm|matmul_ogs", "", F::kAny,
     "expert GEMMs: vLLM's fused_moe_kernel, Triton's _matmul_ogs"},

    // ---- attention
    {C::kAttention, "flash_fwd|flash_bwd|flash::|flashattn|flash_attn|pytorch_flash|flash_attention|flashmla", "",
     F::kAny, "FlashAttention 2 and 3: pytorch_flash::flash_fwd_splitkv_kernel"},
    {C::kAttention, "sdpa|fmha|attentionkernel|attention_kernel|^attention|mha_fwd|kernel_mha|xqa", "", F::kAny,
     "cuDNN, CUTLASS, xFormers, TensorRT-LLM: cudnn_generated_fort_native_sdpa_sm90_flash_fprop, fmha_cutlassF"},
    {C::kAttention, "lean_reduction_kernel", "", F::kAny,
     "cuDNN adds up the parts of split attention: cudnn::fusion::lean_reduction_kernel behind its sdpa kernel"},
    {C::kAttention, "paged_attention|pagedattention|unified_attention|context_attention|prefix_prefill|merge_attn", "",
     F::kAny, "vLLM: paged_attention_v2_kernel, kernel_unified_attention_2d"},
    {C::kAttention, "batchdecodewith|batchprefillwith|singleprefillwith|singledecodewith|mergestate|batchmla", "",
     F::kAny, "FlashInfer: BatchDecodeWithPagedKVCacheKernel"},
    {C::kAttention, "masked_multihead_attention|mmha|_attn_fwd|^_fwd_kernel|_fwd_grouped_kernel_stage|flex_attention",
     "", F::kAny, "TensorRT-LLM and Triton: masked_multihead_attention_kernel, _fwd_grouped_kernel_stage1"},

    // ---- convolution, whose kernels are often implicit GEMMs
    {C::kConvolution, "implicit_convolve|convolve|conv1d|conv2d|conv3d|convolution|_fprop_|dgrad|wgrad|im2col", "",
     F::kAny, "cuDNN: sm80_xmma_fprop_implicit_gemm_bf16, implicit_convolve_sgemm"},
    {C::kConvolution, "nchwtonhwc|nhwctonchw|conv_depthwise", "", F::kAny, "cuDNN's layout changes"},

    // ---- GEMM
    {C::kGemm, "nvjet|gemm|gemv|splitkreduce|cublaslt::|xmma_", "", F::kAny,
     "cuBLAS and CUTLASS: nvjet_sm90_tst_128x64, ampere_bf16_s16816gemm, gemv2T_kernel_val, splitKreduce_kernel"},
    {C::kGemm, "marlin|machete|matmul|w8a8|wgrad_alpha|^bmm_|dot_kernel|reduce_1block_kernel", "", F::kAny,
     "quantised and Triton GEMMs, cuBLAS dot products: marlin::Marlin, _w8a8_block_fp8_matmul"},

    // ---- kernels with names of their own
    {C::kRope, "rotary|rope_kernel|ropekernel|_rope|applyrope|rope_quant", "", F::kAny,
     "vLLM and FlashInfer: rotary_embedding_kernel, BatchQKApplyRotaryPosIdsCosSinCacheKernel"},
    {C::kNorm, "rms_norm|rmsnorm|layer_norm|layernorm|group_norm|groupnorm|batch_norm|l2norm|qk_norm", "", F::kAny,
     "vLLM, FlashInfer, PyTorch: fused_add_rms_norm_kernel, vectorized_layer_norm_kernel"},
    {C::kNorm, "rowwisemoments|computefusedparams", "", F::kAny, "PyTorch's group norm"},
    {C::kActivation, "act_and_mul|silu|gelu|swiglu|geglu|relu|doactivation|do_activation", "", F::kAny,
     "vLLM and PyTorch: act_and_mul_kernel, silu_kernel, GeluCUDAKernelImpl"},
    {C::kQuantize, "fp8_quant|int8_quant|fp4_quant|token_quant|group_quant|quant_fp8|quantize|dequant|cvt_fp16_to_fp4",
     "", F::kAny, "vLLM and SGLang: scaled_fp8_quant_kernel, per_token_group_quant_8bit, awq dequantize_weights"},
    {C::kQuantize, "reconstruct*gptq|reconstruct_exllama|awq_|gptq_", "", F::kAny, "vLLM: reconstruct_gptq_kernel"},

    // ---- operators whose every kernel has one meaning
    {C::kAttention, "",
     "scaled_dot_product|_flash_attention|_efficient_attention|_cudnn_attention|^flash_attn::|multi_head_attention|"
     "unified_attention|unified_mla",
     F::kAny, "helpers and the mathematical fall-back of PyTorch's attention"},
    {C::kConvolution, "", "^aten::cudnn_convolution|^aten::_convolution|^aten::convolution", F::kAny,
     "layout changes, biases and FFTs around a convolution"},
    {C::kSampling, "", "^aten::argmax|^aten::multinomial|^aten::exponential_|^aten::log_softmax|^aten::_log_softmax",
     F::kAny, "greedy and random choice of the next token"},
    {C::kMoeRouting, "", "^aten::topk|^aten::softmax|^aten::_softmax|^aten::sigmoid$", F::kRouter,
     "scores of experts: 2-D and narrow"},
    {C::kMoeRouting, "", "^aten::bincount|^aten::histc|^aten::one_hot", F::kAny, "tokens counted per expert"},
    {C::kSampling, "", "^aten::softmax|^aten::_softmax|^aten::cumsum|^aten::sort|^aten::gather|^aten::scatter",
     F::kVocabulary, "probabilities of the vocabulary"},
    {C::kSampling, "", "^aten::topk|^aten::sort$|^aten::kthvalue", F::kAny, "candidates for the next token"},
    {C::kSoftmax, "", "^aten::softmax|^aten::_softmax|^aten::_safe_softmax", F::kAny, "attention written out"},
    {C::kNorm, "", "_norm$|^aten::native_layer_norm|^aten::native_group_norm|^aten::_fused_rms_norm", F::kAny,
     "PyTorch's norms"},
    {C::kNorm, "", "^aten::pow|^aten::mean|^aten::rsqrt|^aten::var_mean", F::kAny,
     "norm written out: x * rsqrt(mean(x^2) + eps) * weight"},
    {C::kNorm, "", "^aten::mul$|^aten::mul_$", F::kScalesRows, "norm written out: a factor per token"},
    {C::kNorm, "", "^aten::mul$|^aten::mul_$", F::kScalesColumns, "norm written out: the weight"},
    {C::kNorm, "", "^aten::add$|^aten::add_$", F::kOnePerRow, "norm written out: eps"},
    {C::kKvCache, "", "^aten::cat$", F::kGrowsSequence, "a cache that grows by joining keys or values with new ones"},
    {C::kKvCache, "", "^aten::index_copy|^aten::slice_scatter", F::kAny, "a static cache written in place"},
    {C::kKvCache, "", "^aten::index_put_|^aten::_index_put_impl_", F::kCacheRows, "a paged cache written in place"},
    {C::kRope, "", "^aten::cat$", F::kJoinsHalves, "rope written out: the rotated halves joined"},
    {C::kRope, "", "^aten::mul$", F::kPerHead, "rope written out: times cos and sin"},
    {C::kRope, "", "^aten::neg$|^aten::cos$|^aten::sin$", F::kAny, "rope written out"},
    {C::kEmbedding, "", "^aten::embedding|^aten::index_select|^aten::gather", F::kAny, "rows looked up in a table"},
    {C::kActivation, "", "^aten::silu|^aten::gelu|^aten::relu|^aten::hardswish|^aten::mish|^aten::glu", F::kAny,
     "PyTorch's activations"},

    // ---- kernels of PyTorch that tell their meaning without an operator (inside a CUDA graph there is none)
    {C::kKvCache, "index_copy_kernel", "", F::kAny, "index_copy_ of a static cache"},
    {C::kSampling,
     "argmaxops|gathertopk|radixtopk|bitonicsort|radixsort|multinomial|sampling::|samplingfrom|samplingkernel|"
     "exponential",
     "", F::kAny, "PyTorch and FlashInfer: ArgMaxOps, gatherTopK, TopPSamplingFromProbKernel"},
    {C::kSampling, "sbtopk|mbtopk|top_p|topp|top_k|min_p|penalt|segmented_sort|softmax_sample", "", F::kAny,
     "vLLM and SGLang: apply_repetition_penalties_kernel"},
    {C::kSoftmax, "softmax", "", F::kAny, "PyTorch: softmax_warp_forward, cunn_SoftMaxForward"},
    {C::kNorm, "meanops|rsqrt_kernel|pow_tensor_scalar|welford", "", F::kAny, "norm written out"},
    {C::kRope, "neg_kernel|cos_kernel|sin_kernel", "", F::kAny, "rope written out"},
    {C::kEmbedding, "embedding|indexselect|vectorized_gather_kernel|index_kernel_impl|scatter_gather", "", F::kAny,
     "PyTorch: indexSelectSmallIndex, vectorized_gather_kernel"},
    {C::kSampling, "^sample_greedy|^sample_top", "", F::kAny, "llmprof's own: sample_greedy"},
    {C::kEmbedding, "^gather$", "", F::kAny, "llmprof's own: gather"},
    {C::kElementwise, "^add_into$", "", F::kAny, "llmprof's own: add_into"},
    {C::kCopy, "direct_copy_kernel|bfloat16_copy_kernel|float16_copy_kernel|float8_copy|copy_kernel", "", F::kAny,
     "PyTorch's tensor copies and type conversions"},
    {C::kCopy, "catarraybatchedcopy", "", F::kAny, "PyTorch's cat where its inputs say no more"},
    {C::kCopy, "^memcpy|^memset", "", F::kAny, "copies recorded as kernels"},
    {C::kElementwise,
     "elementwise_kernel|elementwise_kernel_with_index|index_elementwise|reduce_kernel|multi_tensor_apply", "", F::kAny,
     "PyTorch's other element by element kernels and small reductions"},
    {C::kElementwise, "tensor_kernel_scan|triu_tril|devicescan|devicereduce|deviceselect|devicecompact|cub::", "",
     F::kAny, "scans, masks and compactions"},
};
static_assert(std::size(kKernelRules) <= kMaxKernelRules);

// Anything that names these finishes the arithmetic of the kernel before it.
constexpr std::string_view kAuxiliary =
    "splitkreduce|lean_reduction|splitkv_combine|combine_kernel|mergestate|merge_attn|_reduce_kernel|kernel_stage2|"
    "reduce_segments|paged_attention_v2_reduce";

// Names beyond this length are compared by their head only: what a kernel is stands in front of its arguments.
constexpr size_t kComparedChars = 2048;

std::string lower_head(std::string_view name) {
  std::string lower(name.substr(0, kComparedChars));
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return lower;
}

bool fits_one(std::string_view alternative, std::string_view name) {
  bool at_start = false, at_end = false;
  if (alternative.starts_with('^')) {
    at_start = true;
    alternative.remove_prefix(1);
  }
  if (alternative.ends_with('$')) {
    at_end = true;
    alternative.remove_suffix(1);
  }
  size_t at = 0;
  while (true) {
    const size_t star = alternative.find('*');
    const std::string_view piece = alternative.substr(0, star);
    const bool last = star == std::string_view::npos;
    if (at_start) {
      if (!name.substr(at).starts_with(piece)) return false;
      at_start = false;
      if (last && at_end) return name.size() == at + piece.size();
      at += piece.size();
    } else if (last && at_end) {
      return name.size() >= at + piece.size() && name.ends_with(piece);
    } else {
      const size_t found = name.find(piece, at);
      if (found == std::string_view::npos) return false;
      at = found + piece.size();
    }
    if (last) return true;
    alternative.remove_prefix(star + 1);
  }
}

}  // namespace

bool fits(std::string_view pattern, std::string_view lower_name) {
  if (pattern.empty()) return true;
  while (true) {
    const size_t bar = pattern.find('|');
    if (fits_one(pattern.substr(0, bar), lower_name)) return true;
    if (bar == std::string_view::npos) return false;
    pattern.remove_prefix(bar + 1);
  }
}

std::span<const KernelRule> kernel_rules() { return kKernelRules; }

RuleSet rules_for_kernel(std::string_view kernel_name) {
  const std::string lower = lower_head(kernel_name);
  RuleSet set;
  for (size_t i = 0; i < std::size(kKernelRules); ++i) set[i] = fits(kKernelRules[i].kernel, lower);
  return set;
}

RuleSet rules_for_operator(std::string_view operator_name) {
  const std::string lower = lower_head(operator_name);
  RuleSet set;
  for (size_t i = 0; i < std::size(kKernelRules); ++i) {
    set[i] = !kKernelRules[i].operators.empty() && fits(kKernelRules[i].operators, lower);
  }
  return set;
}

const RuleSet& rules_for_any_operator() {
  static const RuleSet set = [] {
    RuleSet any;
    for (size_t i = 0; i < std::size(kKernelRules); ++i) any[i] = kKernelRules[i].operators.empty();
    return any;
  }();
  return set;
}

int first_rule(const RuleSet& fitting, const InputFacts& facts) {
  for (size_t i = fitting._Find_first(); i < std::size(kKernelRules); i = fitting._Find_next(i)) {
    if (facts[static_cast<size_t>(kKernelRules[i].fact)]) return static_cast<int>(i);
  }
  return -1;
}

bool is_auxiliary_kernel(std::string_view kernel_name) { return fits(kAuxiliary, lower_head(kernel_name)); }

std::string_view input_fact_name(InputFact fact) {
  static constexpr std::array<std::string_view, static_cast<size_t>(F::kCount)> kNames = {
      "",         "joins-halves", "grows-sequence", "scales-rows", "scales-columns", "one-per-row",
      "per-head", "vocabulary",   "router",         "cache-rows"};
  const size_t i = static_cast<size_t>(fact);
  return i < kNames.size() ? kNames[i] : std::string_view("unknown");
}

namespace {

// Equal but for dimension `from_end`, where exactly one of the two is 1.
bool broadcasts_only(const Shape& a, const Shape& b, int from_end) {
  if (a.rank != b.rank || a.rank < from_end) return false;
  for (int i = 1; i <= a.rank; ++i) {
    if (i != from_end && a.back(i) != b.back(i)) return false;
  }
  return (a.back(from_end) == 1) != (b.back(from_end) == 1);
}

void add_list_facts(const SignatureShapes& shapes, InputFacts& facts) {
  const std::vector<Shape> list = shapes.tensors(0);
  const std::optional<int64_t> recorded = shapes.integer(1);
  if (list.size() < 2 || !recorded) return;
  const Shape& last = list.back();
  const int64_t dim = *recorded < 0 ? -*recorded : last.rank - *recorded;  // from the end
  bool equal = true, four = last.rank == 4;
  for (const Shape& shape : list) {
    equal &= shape.rank == last.rank && shape.dims == last.dims;
    four &= shape.rank == 4 || shape.elements == 0;  // a new cache starts as an empty tensor
  }
  if (dim == 1 && equal && last.rank >= 3 && last.back(1) <= 256) facts.set(static_cast<size_t>(F::kJoinsHalves));
  if (dim == 2 && four) facts.set(static_cast<size_t>(F::kGrowsSequence));
}

}  // namespace

InputFacts input_facts(const SignatureShapes& shapes) {
  InputFacts facts;
  facts.set(static_cast<size_t>(F::kAny));
  add_list_facts(shapes, facts);
  const std::optional<Shape> a = shapes.tensor(0), b = shapes.tensor(1);
  if (!a) return facts;
  const auto set = [&](F fact, bool holds) { facts[static_cast<size_t>(fact)] = holds; };
  set(F::kVocabulary, a->rank >= 1 && a->rank <= 3 && a->back(1) >= 8192);
  set(F::kRouter, a->rank == 2 && a->back(1) >= 2 && a->back(1) <= 1024);
  set(F::kCacheRows, a->rank >= 3);
  const bool alone = !b || b->rank == 0;
  // A single number counts only as a hidden state's statistic: 3-D and not an integer (positions are integers).
  const DType type = shapes.dtype(0);
  const bool real = type != DType::kUnknown && type < DType::kInt8;
  set(F::kOnePerRow, alone && a->back(1) == 1 && ((a->rank >= 2 && a->elements > 1) || (a->rank >= 3 && real)));
  if (alone) return facts;
  set(F::kScalesRows, a->rank >= 2 && broadcasts_only(*a, *b, 1));
  const Shape& vector = a->rank == 1 ? *a : *b;
  const Shape& other = a->rank == 1 ? *b : *a;
  set(F::kScalesColumns, vector.rank == 1 && other.rank >= 2 && vector[0] > 1 && vector[0] == other.back(1));
  set(F::kPerHead, a->rank == 4 && broadcasts_only(*a, *b, 3));
  return facts;
}

UnnamedTime unnamed_gpu_time(const Trace& trace, size_t top_count) {
  UnnamedTime out;
  std::vector<UnnamedKernel> by_name(trace.strings.size());
  for (size_t i = 0; i < trace.gpu_ops.size(); ++i) {
    const int64_t duration = trace.gpu_ops.dur_ns[i];
    out.total_ns += duration;
    if (trace.gpu_links.category[i] != Category::kOther) continue;
    out.unnamed_ns += duration;
    UnnamedKernel& kernel = by_name[index(trace.gpu_ops.name[i]) < by_name.size() ? index(trace.gpu_ops.name[i]) : 0];
    kernel.name = trace.gpu_ops.name[i];
    kernel.time_ns += duration;
    ++kernel.count;
  }
  if (out.total_ns > 0) out.unnamed_frac = static_cast<double>(out.unnamed_ns) / static_cast<double>(out.total_ns);
  std::erase_if(by_name, [](const UnnamedKernel& kernel) { return kernel.count == 0; });
  std::stable_sort(by_name.begin(), by_name.end(),
                   [](const UnnamedKernel& a, const UnnamedKernel& b) { return a.time_ns > b.time_ns; });
  if (by_name.size() > top_count) by_name.resize(top_count);
  out.top = std::move(by_name);
  return out;
}

}  // namespace llmprof
