#include "model/architectures.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace llmprof {
namespace {

// Which layers slide, where the file does not list layer_types.
enum class WindowRule : uint8_t { kAll, kEvenLayers, kEverySixthFull };

// Fields every decoder has.
Status read_shape(const JsonFields& f, ModelConfig& c) {
  LLMPROF_ASSIGN(c.hidden_size, f.integer("hidden_size", 1, kMaxDimension));
  LLMPROF_ASSIGN(const int64_t layers, f.integer("num_hidden_layers", 1, kMaxLayers));
  c.layers.assign(static_cast<size_t>(layers), LayerConfig());
  LLMPROF_ASSIGN(c.num_heads, f.integer("num_attention_heads", 1, kMaxDimension));
  LLMPROF_ASSIGN(c.vocab_size, f.integer("vocab_size", 1, kMaxDimension));
  LLMPROF_ASSIGN(c.max_position, f.integer_or("max_position_embeddings", 1, int64_t{1} << 40, 0));
  LLMPROF_ASSIGN(c.activation, f.string_or("hidden_act", "silu"));
  LLMPROF_ASSIGN(c.activation, f.string_or("hidden_activation", c.activation));
  return {};
}

Status read_kv_heads(const JsonFields& f, ModelConfig& c) {
  LLMPROF_ASSIGN(c.num_kv_heads, f.integer_or("num_key_value_heads", 1, kMaxDimension, c.num_heads));
  if (c.num_heads % c.num_kv_heads != 0)
    return f.wrong("num_key_value_heads", fmt::format("a divisor of num_attention_heads ({})", c.num_heads),
                   fmt::format("{}", c.num_kv_heads));
  return {};
}

// The size of a head as the file says. Only where the reference implementation computes it is it hidden / heads.
Status read_head_dim(const JsonFields& f, ModelConfig& c, bool computed_when_absent) {
  if (f.has("head_dim") || !computed_when_absent) {
    LLMPROF_ASSIGN(c.head_dim, f.integer("head_dim", 1, kMaxDimension));
    return {};
  }
  if (c.hidden_size % c.num_heads != 0)
    return fail(fmt::format("the config has no \"{}\" and hidden_size {} is not a multiple of {} heads",
                            f.full_name("head_dim"), c.hidden_size, c.num_heads),
                f.origin(), "add head_dim to the config");
  c.head_dim = c.hidden_size / c.num_heads;
  return {};
}

// `absent` is the window that the reference implementation takes where the file does not name the field (0: none); null
// and 0 mean none everywhere.
Status read_windows(const JsonFields& f, ModelConfig& c, WindowRule rule, int64_t absent) {
  LLMPROF_ASSIGN(const int64_t window,
                 f.integer_or("sliding_window", 0, int64_t{1} << 40, f.names("sliding_window") ? 0 : absent));
  LLMPROF_ASSIGN(const std::optional<std::vector<std::string>> types,
                 f.strings("layer_types", static_cast<size_t>(kMaxLayers)));
  if (types) {
    if (types->size() != c.layers.size())
      return f.wrong("layer_types", fmt::format("{} entries, one per layer", c.layers.size()),
                     fmt::format("{}", types->size()));
    for (size_t i = 0; i < types->size(); ++i) {
      if ((*types)[i] == "sliding_attention") {
        if (window == 0) return f.missing("sliding_window");
        c.layers[i].window = window;
      } else if ((*types)[i] != "full_attention") {
        return f.wrong("layer_types", "full_attention or sliding_attention", "\"" + (*types)[i] + "\"");
      }
    }
    return {};
  }
  // Newer files write it with an underscore.
  const std::string_view pattern =
      f.has("sliding_window_pattern") ? "sliding_window_pattern" : "_sliding_window_pattern";
  LLMPROF_ASSIGN(const int64_t period, f.integer_or(pattern, 1, kMaxLayers, 6));
  for (size_t i = 0; i < c.layers.size(); ++i) {
    bool slides = true;
    if (rule == WindowRule::kEvenLayers) slides = i % 2 == 0;
    if (rule == WindowRule::kEverySixthFull) slides = (static_cast<int64_t>(i) + 1) % period != 0;
    c.layers[i].window = slides ? window : 0;
  }
  return {};
}

Status read_dense(const JsonFields& f, ModelConfig& c, bool head_dim_computed) {
  LLMPROF_CHECK(read_shape(f, c));
  LLMPROF_ASSIGN(c.intermediate_size, f.integer("intermediate_size", 1, kMaxDimension));
  LLMPROF_CHECK(read_kv_heads(f, c));
  LLMPROF_CHECK(read_head_dim(f, c, head_dim_computed));
  LLMPROF_ASSIGN(c.tied_embeddings, f.boolean_or("tie_word_embeddings", c.tied_embeddings));
  LLMPROF_ASSIGN(const bool bias, f.boolean_or("attention_bias", c.qkv_bias && c.o_bias));
  c.qkv_bias = c.qkv_bias || bias;
  c.o_bias = c.o_bias || bias;
  return {};
}

Status read_llama(const JsonFields& f, ModelConfig& c) {
  LLMPROF_CHECK(read_dense(f, c, true));
  LLMPROF_ASSIGN(c.mlp_bias, f.boolean_or("mlp_bias", false));
  return {};
}

Status read_mistral(const JsonFields& f, ModelConfig& c) {
  LLMPROF_CHECK(read_dense(f, c, true));
  return read_windows(f, c, WindowRule::kAll, 4096);
}

// Qwen2 windows: off unless use_sliding_window, and then only from layer max_window_layers on.
Status read_qwen_windows(const JsonFields& f, ModelConfig& c) {
  LLMPROF_ASSIGN(const bool used, f.boolean_or("use_sliding_window", false));
  if (!used) return {};
  LLMPROF_CHECK(read_windows(f, c, WindowRule::kAll, 4096));
  if (f.has("layer_types")) return {};
  LLMPROF_ASSIGN(const int64_t first, f.integer_or("max_window_layers", 0, kMaxLayers, 28));
  for (size_t i = 0; i < c.layers.size() && static_cast<int64_t>(i) < first; ++i) c.layers[i].window = 0;
  return {};
}

Status read_qwen2(const JsonFields& f, ModelConfig& c) {
  LLMPROF_CHECK(read_dense(f, c, true));
  c.qkv_bias = true;
  return read_qwen_windows(f, c);
}

Status read_qwen3(const JsonFields& f, ModelConfig& c) {
  c.qk_norm = QkNorm::kPerHead;
  LLMPROF_CHECK(read_dense(f, c, false));
  return read_qwen_windows(f, c);
}

Status read_olmo2(const JsonFields& f, ModelConfig& c) {
  c.qk_norm = QkNorm::kFull;
  return read_dense(f, c, true);
}

Status read_gemma(const JsonFields& f, ModelConfig& c) {
  c.tied_embeddings = true;
  return read_dense(f, c, false);
}

Status read_gemma2(const JsonFields& f, ModelConfig& c) {
  c.tied_embeddings = true;
  c.norms_per_layer = 4;
  LLMPROF_CHECK(read_dense(f, c, false));
  return read_windows(f, c, WindowRule::kEvenLayers, 4096);
}

Status read_gemma3(const JsonFields& f, ModelConfig& c) {
  c.tied_embeddings = true;
  c.norms_per_layer = 4;
  c.qk_norm = QkNorm::kPerHead;
  LLMPROF_CHECK(read_dense(f, c, false));
  if (!f.integer("sliding_window", 1, int64_t{1} << 40)) return f.missing("sliding_window");
  return read_windows(f, c, WindowRule::kEverySixthFull, 0);
}

Status read_phi3(const JsonFields& f, ModelConfig& c) {
  c.fused_qkv = c.fused_gate_up = true;
  LLMPROF_CHECK(read_dense(f, c, true));
  return read_windows(f, c, WindowRule::kAll, 0);
}

Status read_gpt2(const JsonFields& f, ModelConfig& c) {
  LLMPROF_ASSIGN(c.hidden_size, f.integer("n_embd", 1, kMaxDimension));
  LLMPROF_ASSIGN(const int64_t layers, f.integer("n_layer", 1, kMaxLayers));
  c.layers.assign(static_cast<size_t>(layers), LayerConfig());
  LLMPROF_ASSIGN(c.num_heads, f.integer("n_head", 1, kMaxDimension));
  c.num_kv_heads = c.num_heads;
  LLMPROF_CHECK(read_head_dim(f, c, true));
  LLMPROF_ASSIGN(c.vocab_size, f.integer("vocab_size", 1, kMaxDimension));
  LLMPROF_ASSIGN(c.max_position, f.integer("n_positions", 1, kMaxDimension));
  LLMPROF_ASSIGN(c.intermediate_size, f.integer_or("n_inner", 1, kMaxDimension, 4 * c.hidden_size));
  LLMPROF_ASSIGN(c.activation, f.string_or("activation_function", "gelu_new"));
  LLMPROF_ASSIGN(c.tied_embeddings, f.boolean_or("tie_word_embeddings", true));
  c.learned_positions = c.max_position;
  c.norm = NormKind::kLayer;
  c.gated_mlp = false;
  c.fused_qkv = true;
  c.qkv_bias = c.o_bias = c.mlp_bias = true;
  return {};
}

Status read_mixtral(const JsonFields& f, ModelConfig& c) {
  LLMPROF_CHECK(read_dense(f, c, true));
  LLMPROF_CHECK(read_windows(f, c, WindowRule::kAll, 0));
  MoeConfig& moe = c.moe.emplace();
  LLMPROF_ASSIGN(moe.experts, f.integer("num_local_experts", 1, kMaxExperts));
  LLMPROF_ASSIGN(moe.top_k, f.integer("num_experts_per_tok", 1, moe.experts));
  moe.intermediate_size = c.intermediate_size;
  for (LayerConfig& layer : c.layers) layer.moe = true;
  return {};
}

// Every decoder_sparse_step-th layer has experts, except those of mlp_only_layers.
Status read_qwen_experts(const JsonFields& f, ModelConfig& c) {
  MoeConfig& moe = c.moe.emplace();
  LLMPROF_ASSIGN(moe.experts, f.integer("num_experts", 1, kMaxExperts));
  LLMPROF_ASSIGN(moe.top_k, f.integer("num_experts_per_tok", 1, moe.experts));
  LLMPROF_ASSIGN(moe.intermediate_size, f.integer("moe_intermediate_size", 1, kMaxDimension));
  LLMPROF_ASSIGN(const int64_t step, f.integer_or("decoder_sparse_step", 1, kMaxLayers, 1));
  LLMPROF_ASSIGN(const std::optional<std::vector<int64_t>> dense,
                 f.integers("mlp_only_layers", static_cast<size_t>(kMaxLayers)));
  for (size_t i = 0; i < c.layers.size(); ++i) {
    const int64_t index = static_cast<int64_t>(i);
    const bool listed = dense && std::find(dense->begin(), dense->end(), index) != dense->end();
    c.layers[i].moe = !listed && (index + 1) % step == 0;
  }
  return {};
}

Status read_qwen2_moe(const JsonFields& f, ModelConfig& c) {
  LLMPROF_CHECK(read_dense(f, c, true));
  LLMPROF_ASSIGN(c.qkv_bias, f.boolean_or("qkv_bias", true));
  LLMPROF_CHECK(read_qwen_windows(f, c));
  LLMPROF_CHECK(read_qwen_experts(f, c));
  LLMPROF_ASSIGN(c.moe->shared_intermediate_size, f.integer("shared_expert_intermediate_size", 1, kMaxDimension));
  c.moe->shared_experts = 1;
  c.moe->shared_gate = true;
  return {};
}

Status read_qwen3_moe(const JsonFields& f, ModelConfig& c) {
  c.qk_norm = QkNorm::kPerHead;
  LLMPROF_CHECK(read_dense(f, c, false));
  LLMPROF_CHECK(read_qwen_windows(f, c));
  return read_qwen_experts(f, c);
}

Status read_gpt_oss(const JsonFields& f, ModelConfig& c) {
  c.qkv_bias = c.o_bias = true;
  c.attention_sinks = true;
  c.fused_gate_up = true;
  LLMPROF_CHECK(read_dense(f, c, false));
  LLMPROF_CHECK(read_windows(f, c, WindowRule::kEvenLayers, 128));
  MoeConfig& moe = c.moe.emplace();
  LLMPROF_ASSIGN(moe.experts, f.integer("num_local_experts", 1, kMaxExperts));
  // Early files say experts_per_token.
  const std::string_view top_k = f.has("num_experts_per_tok") ? "num_experts_per_tok" : "experts_per_token";
  LLMPROF_ASSIGN(moe.top_k, f.integer(top_k, 1, moe.experts));
  moe.intermediate_size = c.intermediate_size;
  moe.router_bias = moe.expert_bias = true;
  for (LayerConfig& layer : c.layers) layer.moe = true;
  return {};
}

Status read_deepseek_experts(const JsonFields& f, ModelConfig& c) {
  LLMPROF_ASSIGN(const int64_t experts, f.integer_or("n_routed_experts", 1, kMaxExperts, 0));
  if (experts == 0) return {};
  MoeConfig& moe = c.moe.emplace();
  moe.experts = experts;
  LLMPROF_ASSIGN(moe.top_k, f.integer("num_experts_per_tok", 1, moe.experts));
  LLMPROF_ASSIGN(moe.intermediate_size, f.integer("moe_intermediate_size", 1, kMaxDimension));
  LLMPROF_ASSIGN(moe.shared_experts, f.integer_or("n_shared_experts", 0, 4096, 0));
  moe.shared_intermediate_size = moe.shared_experts * moe.intermediate_size;
  LLMPROF_ASSIGN(const int64_t dense, f.integer_or("first_k_dense_replace", 0, kMaxLayers, 0));
  LLMPROF_ASSIGN(const int64_t step, f.integer_or("moe_layer_freq", 1, kMaxLayers, 1));
  for (size_t i = 0; i < c.layers.size(); ++i) {
    const int64_t index = static_cast<int64_t>(i);
    c.layers[i].moe = index >= dense && index % step == 0;
  }
  return {};
}

Status read_deepseek_v2(const JsonFields& f, ModelConfig& c) {
  LLMPROF_CHECK(read_shape(f, c));
  LLMPROF_ASSIGN(c.intermediate_size, f.integer("intermediate_size", 1, kMaxDimension));
  LLMPROF_ASSIGN(c.tied_embeddings, f.boolean_or("tie_word_embeddings", false));
  c.num_kv_heads = c.num_heads;
  MlaConfig& mla = c.mla.emplace();
  LLMPROF_ASSIGN(mla.q_lora_rank, f.integer_or("q_lora_rank", 1, kMaxDimension, 0));
  LLMPROF_ASSIGN(mla.kv_lora_rank, f.integer("kv_lora_rank", 1, kMaxDimension));
  LLMPROF_ASSIGN(mla.qk_nope_dim, f.integer("qk_nope_head_dim", 1, kMaxDimension));
  LLMPROF_ASSIGN(mla.qk_rope_dim, f.integer("qk_rope_head_dim", 1, kMaxDimension));
  LLMPROF_ASSIGN(mla.v_head_dim, f.integer("v_head_dim", 1, kMaxDimension));
  c.head_dim = mla.qk_nope_dim + mla.qk_rope_dim;
  LLMPROF_ASSIGN(const bool bias, f.boolean_or("attention_bias", false));
  if (bias) return f.wrong("attention_bias", "false for this architecture", "true");
  LLMPROF_CHECK(read_deepseek_experts(f, c));
  if (f.has("num_nextn_predict_layers"))
    c.notes.emplace_back("the multi-token-prediction layers of the checkpoint are not counted");
  return {};
}

Status read_deepseek_v3(const JsonFields& f, ModelConfig& c) {
  LLMPROF_CHECK(read_deepseek_v2(f, c));
  if (c.moe) c.moe->correction_bias = true;
  return {};
}

constexpr std::array<FieldDefault, 7> kLlamaDefaults = {{{"hidden_size", 4096},
                                                         {"intermediate_size", 11008},
                                                         {"num_hidden_layers", 32},
                                                         {"num_attention_heads", 32},
                                                         {"num_key_value_heads", 32},
                                                         {"vocab_size", 32000},
                                                         {"max_position_embeddings", 2048}}};
constexpr std::array<FieldDefault, 9> kGemma3Defaults = {{{"hidden_size", 2304},
                                                          {"intermediate_size", 9216},
                                                          {"num_hidden_layers", 26},
                                                          {"num_attention_heads", 8},
                                                          {"num_key_value_heads", 4},
                                                          {"head_dim", 256},
                                                          {"vocab_size", 262208},
                                                          {"max_position_embeddings", 131072},
                                                          {"sliding_window", 4096}}};

constexpr std::array<Family, 20> kFamilies = {{
    {"LlamaForCausalLM", "llama", "Llama 1 to 3 and models of their shape", read_llama},
    {"MistralForCausalLM", "mistral", "Mistral, with its sliding window", read_mistral},
    {"Qwen2ForCausalLM", "qwen2", "Qwen2 and Qwen2.5, biases on q, k and v", read_qwen2},
    {"Qwen3ForCausalLM", "qwen3", "Qwen3, norms on q and k", read_qwen3},
    {"Olmo2ForCausalLM", "olmo2", "OLMo 2, norms over all of q and k", read_olmo2},
    {"GemmaForCausalLM", "gemma", "Gemma 1", read_gemma},
    {"Gemma2ForCausalLM", "gemma2", "Gemma 2, every other layer slides", read_gemma2},
    {"Gemma3ForCausalLM", "gemma3_text", "Gemma 3 without vision, five sliding layers to one full", read_gemma3},
    {"Phi3ForCausalLM", "phi3", "Phi-3 and Phi-4, fused q, k, v", read_phi3},
    {"GPT2LMHeadModel", "gpt2", "GPT-2, learned positions, biases everywhere", read_gpt2},
    {"MixtralForCausalLM", "mixtral", "Mixtral, experts in every layer", read_mixtral},
    {"Qwen2MoeForCausalLM", "qwen2_moe", "Qwen1.5-MoE and Qwen2-MoE, a gated shared expert", read_qwen2_moe},
    {"Qwen3MoeForCausalLM", "qwen3_moe", "Qwen3-MoE", read_qwen3_moe},
    {"GptOssForCausalLM", "gpt_oss", "gpt-oss, attention sinks, every other layer slides", read_gpt_oss},
    {"DeepseekV2ForCausalLM", "deepseek_v2", "DeepSeek-V2, latent attention and shared experts", read_deepseek_v2},
    {"DeepseekV3ForCausalLM", "deepseek_v3", "DeepSeek-V3 and R1", read_deepseek_v3},
    {"Qwen2VLForConditionalGeneration", "qwen2_vl", "Qwen2-VL, images of any size", read_qwen2, read_qwen2_vision},
    {"Qwen2_5_VLForConditionalGeneration", "qwen2_5_vl", "Qwen2.5-VL, windowed vision tower", read_qwen2,
     read_qwen25_vision},
    {"LlavaForConditionalGeneration", "llava", "LLaVA 1.5: CLIP and a Llama", read_llama, read_llava_vision,
     kLlamaDefaults},
    {"Gemma3ForConditionalGeneration", "gemma3", "Gemma 3 with its SigLIP tower", read_gemma3, read_gemma3_vision,
     kGemma3Defaults},
}};

}  // namespace

std::span<const Family> families() { return kFamilies; }

const Family* find_family(std::string_view architecture, std::string_view model_type) {
  for (const Family& family : families())
    if (!architecture.empty() ? family.architecture == architecture : family.model_type == model_type) return &family;
  return nullptr;
}

}  // namespace llmprof
