#include "derive/op_rules.h"

#include <array>
#include <unordered_map>

namespace llmprof {
namespace {

using K = OpRuleKind;

// Positions follow the operator schemas of PyTorch (native_functions.yaml), flash-attn 2, vLLM and SGLang.
constexpr OpRule kOpRules[] = {
    // GEMM
    {.name = "aten::mm", .kind = K::kMm},
    {.name = "aten::addmm", .kind = K::kMm, .a = 1, .b = 2, .bias = 0},
    {.name = "aten::addmm_", .kind = K::kMm, .a = 1, .b = 2, .bias = 0},
    {.name = "aten::_addmm_activation", .kind = K::kMm, .a = 1, .b = 2, .bias = 0},
    {.name = "aten::_scaled_mm", .kind = K::kMm, .bias = 4, .out_type = 6},
    {.name = "aten::_int_mm", .kind = K::kMm, .result = DType::kInt32},
    {.name = "_C::cutlass_scaled_mm", .kind = K::kMm, .a = 1, .b = 2, .bias = 5, .writes = 1},
    {.name = "sgl_kernel::fp8_scaled_mm", .kind = K::kMm, .out_type = 4},
    {.name = "sgl_kernel::int8_scaled_mm", .kind = K::kMm, .out_type = 4},
    {.name = "aten::bmm", .kind = K::kBmm},
    {.name = "aten::baddbmm", .kind = K::kBmm, .a = 1, .b = 2, .bias = 0},
    {.name = "aten::baddbmm_", .kind = K::kBmm, .a = 1, .b = 2, .bias = 0},
    {.name = "aten::mv", .kind = K::kMv},
    {.name = "aten::addmv", .kind = K::kMv, .a = 1, .b = 2, .bias = 0},
    {.name = "aten::addmv_", .kind = K::kMv, .a = 1, .b = 2, .bias = 0},
    {.name = "aten::_weight_int8pack_mm", .kind = K::kLinear, .bias = 2},
    {.name = "aten::_weight_int4pack_mm", .kind = K::kInt4Linear, .bias = 3},
    {.name = "aten::_grouped_mm", .kind = K::kGroupedMm, .bias = 3, .out_type = 4},
    {.name = "aten::_scaled_grouped_mm", .kind = K::kGroupedMm, .bias = 5, .out_type = 7},
    {.name = "aten::linear", .kind = K::kLinear, .bias = 2},
    {.name = "aten::matmul", .kind = K::kMatmul},

    // Convolution
    {.name = "aten::cudnn_convolution", .kind = K::kConvolution, .stride = 3, .padding = 2, .dilation = 4},
    {.name = "aten::cudnn_convolution_relu",
     .kind = K::kConvolution,
     .bias = 2,
     .stride = 3,
     .padding = 4,
     .dilation = 5},
    {.name = "aten::_conv_depthwise2d", .kind = K::kConvolution, .bias = 3, .stride = 4, .padding = 5, .dilation = 6},
    {.name = "aten::conv_depthwise3d", .kind = K::kConvolution, .bias = 3, .stride = 4, .padding = 5, .dilation = 6},
    {.name = "aten::_slow_conv2d_forward", .kind = K::kConvolution, .bias = 3, .stride = 4, .padding = 5},
    {.name = "aten::slow_conv_dilated2d", .kind = K::kConvolution, .bias = 3, .stride = 4, .padding = 5, .dilation = 6},
    {.name = "aten::_convolution",
     .kind = K::kConvolution,
     .bias = 2,
     .stride = 3,
     .padding = 4,
     .dilation = 5,
     .transposed = 6},
    {.name = "aten::convolution",
     .kind = K::kConvolution,
     .bias = 2,
     .stride = 3,
     .padding = 4,
     .dilation = 5,
     .transposed = 6},
    {.name = "aten::conv1d", .kind = K::kConvolution, .bias = 2, .stride = 3, .padding = 4, .dilation = 5},
    {.name = "aten::conv2d", .kind = K::kConvolution, .bias = 2, .stride = 3, .padding = 4, .dilation = 5},
    {.name = "aten::conv3d", .kind = K::kConvolution, .bias = 2, .stride = 3, .padding = 4, .dilation = 5},

    // Attention
    {.name = "aten::_cudnn_attention_forward", .kind = K::kAttention, .causal = 10, .mask = 3},
    {.name = "aten::_scaled_dot_product_cudnn_attention", .kind = K::kAttention, .causal = 6, .mask = 3},
    {.name = "aten::_flash_attention_forward", .kind = K::kAttentionTokenFirst, .causal = 8, .window = 11, .cu = 3},
    {.name = "aten::_scaled_dot_product_flash_attention", .kind = K::kAttention, .causal = 4},
    {.name = "aten::_scaled_dot_product_flash_attention_for_cpu", .kind = K::kAttention, .causal = 4, .mask = 5},
    {.name = "aten::_efficient_attention_forward", .kind = K::kAttentionTokenFirst, .causal = 9, .mask = 3, .cu = 4},
    {.name = "aten::_scaled_dot_product_efficient_attention", .kind = K::kAttention, .causal = 6, .mask = 3},
    {.name = "aten::_scaled_dot_product_fused_attention_overrideable", .kind = K::kAttention, .causal = 5, .mask = 3},
    {.name = "aten::_scaled_dot_product_attention_math", .kind = K::kAttention, .causal = 5, .mask = 3},
    {.name = "aten::scaled_dot_product_attention", .kind = K::kAttention, .causal = 5, .mask = 3},
    {.name = "flash_attn::_flash_attn_forward", .kind = K::kAttentionTokenFirst, .causal = 5, .window = 6},
    {.name = "flash_attn::_flash_attn_varlen_forward",
     .kind = K::kAttentionTokenFirst,
     .causal = 9,
     .window = 10,
     .cu = 3},
    {.name = "vllm::unified_attention*", .kind = K::kAttentionOpaque},
    {.name = "vllm::unified_mla_attention*", .kind = K::kAttentionOpaque},
    {.name = "_vllm_fa2_C::*", .kind = K::kAttentionOpaque},
    {.name = "_vllm_fa3_C::*", .kind = K::kAttentionOpaque},
    {.name = "sglang::unified_attention*", .kind = K::kAttentionOpaque},

    // Lookups
    {.name = "aten::embedding", .kind = K::kGatherRows},
    {.name = "aten::index_select", .kind = K::kGatherRows, .b = 2, .dim = 1},
    {.name = "aten::gather", .kind = K::kGatherElements, .b = 2},

    // Element by element
    {.name = "aten::add"},
    {.name = "aten::sub"},
    {.name = "aten::rsub"},
    {.name = "aten::mul"},
    {.name = "aten::div"},
    {.name = "aten::pow"},
    {.name = "aten::maximum"},
    {.name = "aten::minimum"},
    {.name = "aten::neg"},
    {.name = "aten::abs"},
    {.name = "aten::exp"},
    {.name = "aten::log"},
    {.name = "aten::cos"},
    {.name = "aten::sin"},
    {.name = "aten::sqrt"},
    {.name = "aten::rsqrt"},
    {.name = "aten::reciprocal"},
    {.name = "aten::clamp"},
    {.name = "aten::sigmoid"},
    {.name = "aten::tanh"},
    {.name = "aten::silu"},
    {.name = "aten::gelu"},
    {.name = "aten::relu"},
    {.name = "aten::where"},
    {.name = "aten::masked_fill"},
    {.name = "aten::eq", .kind = K::kCompare},
    {.name = "aten::ne", .kind = K::kCompare},
    {.name = "aten::lt", .kind = K::kCompare},
    {.name = "aten::le", .kind = K::kCompare},
    {.name = "aten::gt", .kind = K::kCompare},
    {.name = "aten::ge", .kind = K::kCompare},
    {.name = "aten::logical_and", .kind = K::kCompare},
    {.name = "aten::logical_not", .kind = K::kCompare},
    {.name = "aten::bitwise_and", .kind = K::kCompare},
    {.name = "aten::add_", .kind = K::kInPlace, .reads = 3, .writes = 1},
    {.name = "aten::sub_", .kind = K::kInPlace, .reads = 3, .writes = 1},
    {.name = "aten::mul_", .kind = K::kInPlace, .reads = 3, .writes = 1},
    {.name = "aten::div_", .kind = K::kInPlace, .reads = 3, .writes = 1},
    {.name = "aten::neg_", .kind = K::kInPlace, .reads = 1, .writes = 1},
    {.name = "aten::exp_", .kind = K::kInPlace, .reads = 1, .writes = 1},
    {.name = "aten::clamp_", .kind = K::kInPlace, .reads = 1, .writes = 1},
    {.name = "aten::relu_", .kind = K::kInPlace, .reads = 1, .writes = 1},
    {.name = "aten::silu_", .kind = K::kInPlace, .reads = 1, .writes = 1},
    {.name = "aten::sigmoid_", .kind = K::kInPlace, .reads = 1, .writes = 1},
    {.name = "aten::masked_fill_", .kind = K::kInPlace, .reads = 3, .writes = 1},
    {.name = "_C::silu_and_mul", .kind = K::kInPlace, .reads = 2, .writes = 1},
    {.name = "_C::gelu_and_mul", .kind = K::kInPlace, .reads = 2, .writes = 1},
    {.name = "_C::gelu_tanh_and_mul", .kind = K::kInPlace, .reads = 2, .writes = 1},
    {.name = "sgl_kernel::silu_and_mul", .kind = K::kInPlace, .reads = 2, .writes = 1},
    {.name = "_C::rotary_embedding", .kind = K::kInPlace, .reads = 6, .writes = 6},

    // Rows: norms and softmax
    {.name = "aten::softmax", .kind = K::kRowwise},
    {.name = "aten::_softmax", .kind = K::kRowwise},
    {.name = "aten::_log_softmax", .kind = K::kRowwise},
    {.name = "aten::native_layer_norm", .kind = K::kRowwise},
    {.name = "aten::layer_norm", .kind = K::kRowwise},
    {.name = "aten::_fused_rms_norm", .kind = K::kRowwise},
    {.name = "aten::rms_norm", .kind = K::kRowwise},
    {.name = "aten::native_group_norm", .kind = K::kRowwise},
    {.name = "aten::cumsum", .kind = K::kRowwise},
    {.name = "_C::rms_norm", .kind = K::kInPlace, .reads = 6, .writes = 1},
    {.name = "_C::fused_add_rms_norm", .kind = K::kInPlace, .reads = 7, .writes = 3},
    {.name = "sgl_kernel::rmsnorm", .kind = K::kInPlace, .reads = 6, .writes = 1},
    {.name = "sgl_kernel::fused_add_rmsnorm", .kind = K::kInPlace, .reads = 7, .writes = 3},

    // Reductions
    {.name = "aten::mean", .kind = K::kReduce, .dim = 1},
    {.name = "aten::sum", .kind = K::kReduce, .dim = 1},
    {.name = "aten::amax", .kind = K::kReduce, .dim = 1},
    {.name = "aten::amin", .kind = K::kReduce, .dim = 1},
    {.name = "aten::max", .kind = K::kReduce, .dim = 1},
    {.name = "aten::min", .kind = K::kReduce, .dim = 1},
    {.name = "aten::argmax", .kind = K::kReduce, .dim = 1},
    {.name = "aten::argmin", .kind = K::kReduce, .dim = 1},
    {.name = "aten::topk", .kind = K::kReduce, .dim = 2},
    {.name = "aten::all", .kind = K::kReduce, .dim = 1},
    {.name = "aten::any", .kind = K::kReduce, .dim = 1},
    {.name = "aten::linalg_vector_norm", .kind = K::kReduce, .dim = 2},

    // Movement
    {.name = "aten::copy_", .kind = K::kMove, .reads = 2, .writes = 1},
    {.name = "aten::fill_", .kind = K::kMove, .writes = 1},
    {.name = "aten::zero_", .kind = K::kMove, .writes = 1},
    {.name = "aten::cat", .kind = K::kConcat},
    {.name = "aten::stack", .kind = K::kConcat},
    {.name = "aten::index_copy_", .kind = K::kScatter, .reads = 8},
    {.name = "aten::index_add_", .kind = K::kScatter, .reads = 8},
    {.name = "aten::_index_put_impl_", .kind = K::kScatter, .reads = 4},
    {.name = "aten::index_put_", .kind = K::kScatter, .reads = 4},
    {.name = "_C_cache_ops::reshape_and_cache", .kind = K::kScatter, .reads = 3},
    {.name = "_C_cache_ops::reshape_and_cache_flash", .kind = K::kScatter, .reads = 3},
};

}  // namespace

std::span<const OpRule> op_rules() { return kOpRules; }

const OpRule* find_op_rule(std::string_view operator_name) {
  static const std::unordered_map<std::string_view, const OpRule*> exact = [] {
    std::unordered_map<std::string_view, const OpRule*> map;
    for (const OpRule& rule : kOpRules) {
      if (!rule.name.ends_with('*')) map.emplace(rule.name, &rule);
    }
    return map;
  }();
  if (const auto found = exact.find(operator_name); found != exact.end()) return found->second;
  for (const OpRule& rule : kOpRules) {
    if (!rule.name.ends_with('*')) continue;
    if (operator_name.starts_with(rule.name.substr(0, rule.name.size() - 1))) return &rule;
  }
  return nullptr;
}

std::string_view op_rule_kind_name(OpRuleKind kind) {
  static constexpr std::array<std::string_view, static_cast<size_t>(K::kCount)> kNames = {"mm",
                                                                                          "linear",
                                                                                          "int4-linear",
                                                                                          "bmm",
                                                                                          "matmul",
                                                                                          "mv",
                                                                                          "grouped-mm",
                                                                                          "convolution",
                                                                                          "attention",
                                                                                          "attention-token-first",
                                                                                          "attention-opaque",
                                                                                          "gather-rows",
                                                                                          "gather-elements",
                                                                                          "pointwise",
                                                                                          "compare",
                                                                                          "move",
                                                                                          "scatter",
                                                                                          "in-place",
                                                                                          "reduce",
                                                                                          "rowwise",
                                                                                          "concat"};
  const size_t i = static_cast<size_t>(kind);
  return i < kNames.size() ? kNames[i] : std::string_view("unknown");
}

WorkKind work_kind_of(OpRuleKind kind) {
  switch (kind) {
    case K::kMm:
    case K::kLinear:
    case K::kInt4Linear:
    case K::kBmm:
    case K::kMatmul:
    case K::kMv:
    case K::kGroupedMm:
      return WorkKind::kGemm;
    case K::kConvolution:
      return WorkKind::kConvolution;
    case K::kAttention:
    case K::kAttentionTokenFirst:
    case K::kAttentionOpaque:
      return WorkKind::kAttention;
    case K::kGatherRows:
    case K::kGatherElements:
      return WorkKind::kGather;
    case K::kReduce:
    case K::kRowwise:
      return WorkKind::kReduction;
    default:
      return WorkKind::kPointwise;
  }
}

}  // namespace llmprof
