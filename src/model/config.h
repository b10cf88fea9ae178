// What a model is, in one normalised form: the shape of every layer as its reference implementation builds it. Read
// from a Hugging Face config.json (fields in any order, unknown fields ignored) or taken from the shipped table.
//
// What always holds for a ModelConfig that these functions return: every dimension is positive and at most
// kMaxDimension, `layers` has one entry per decoder layer, num_heads is a multiple of num_kv_heads, and the whole model
// has at most kMaxParameters parameters, so that counts fit int64 and bytes are exact in a double.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/number_format.h"

namespace llmprof {

// Limits on untrusted input. No published model comes near them.
constexpr int64_t kMaxDimension = int64_t{1} << 24;
constexpr int64_t kMaxLayers = 1024;
constexpr int64_t kMaxExperts = 65536;
constexpr int64_t kMaxParameters = int64_t{1'000'000'000'000'000};
constexpr size_t kMaxConfigBytes = size_t{1} << 20;

enum class NormKind : uint8_t { kRms, kLayer };  // weight only; weight and bias
enum class QkNorm : uint8_t {
  kNone,
  kPerHead,  // one weight of head_dim shared by all heads (Qwen3, Gemma 3)
  kFull      // one weight over all heads together (OLMo 2)
};

struct LayerConfig {
  int64_t window = 0;  // keys a query sees at most, itself included; 0: all before it
  bool moe = false;
};

// Multi-head latent attention (DeepSeek-V2 paper, section 2.1): keys and values are rebuilt from one cached vector of
// kv_lora_rank + qk_rope_dim numbers per token, shared by all heads.
struct MlaConfig {
  int64_t q_lora_rank = 0;  // 0: queries are projected directly
  int64_t kv_lora_rank = 0;
  int64_t qk_nope_dim = 0;
  int64_t qk_rope_dim = 0;
  int64_t v_head_dim = 0;
};

struct MoeConfig {
  int64_t experts = 0;
  int64_t top_k = 0;
  int64_t intermediate_size = 0;         // of one routed expert
  int64_t shared_experts = 0;            // as the config counts them
  int64_t shared_intermediate_size = 0;  // width of all shared experts together; 0: none
  bool shared_gate = false;              // a gate of one output on the shared expert (Qwen2-MoE)
  bool router_bias = false;
  bool expert_bias = false;
  bool correction_bias = false;  // one load-balancing number per expert (DeepSeek-V3)
};

enum class ProjectorKind : uint8_t {
  kPatchMerger,  // Qwen-VL: norm, then two linear layers on merge x merge patches; part of the tower
  kTwoLayer,     // LLaVA: two linear layers with biases, outside the tower
  kPooledLinear  // Gemma 3: average pooling, norm, one linear layer, outside the tower
};

struct VisionConfig {
  std::string kind;  // "qwen2_vl", "qwen2_5_vl", "clip", "siglip"
  int64_t depth = 0, hidden_size = 0, intermediate_size = 0, num_heads = 0;
  int64_t channels = 3, patch_size = 0, temporal_patch = 1;
  int64_t image_size = 0;            // 0: any size, in steps of patch_size * merge
  int64_t merge = 1;                 // merge x merge patches become one token of the language model
  int64_t positions = 0;             // learned position embeddings
  int64_t window_patches = 0;        // side of an attention window in patches; 0: no windows
  std::vector<int64_t> full_layers;  // with windows: the layers that attend to the whole image
  NormKind norm = NormKind::kLayer;
  bool gated_mlp = false, patch_bias = false, class_token = false, pre_norm = false, post_norm = false;
  ProjectorKind projector = ProjectorKind::kPatchMerger;
  int64_t output_size = 0;       // hidden size of the language model
  int64_t tokens_per_image = 0;  // given to the language model; 0: follows from the image's size
};

// What quantization_config says of the checkpoint.
struct QuantizationConfig {
  std::string method;                  // as in the file, for example "fp8", "awq", "mxfp4"
  std::optional<NumberFormat> format;  // absent: a method llmprof does not know; weights need --weights
  bool attention_kept = false;         // attention stays at 16 bits (gpt-oss)
  // What the inputs of its products are quantised to as they run (W8A8); absent: weights only (W8A16, W4A16).
  std::optional<NumberFormat> activations;
};

struct ModelConfig {
  std::string id;            // "meta-llama/Llama-3.1-8B", or the file it was read from
  std::string origin;        // file or "shipped table"
  std::string architecture;  // "LlamaForCausalLM"
  NumberFormat dtype;        // torch_dtype; bf16 if the file does not say
  bool dtype_given = false;
  std::optional<QuantizationConfig> quantization;

  int64_t hidden_size = 0, intermediate_size = 0, vocab_size = 0, max_position = 0;
  int64_t num_heads = 0, num_kv_heads = 0;
  int64_t head_dim = 0;  // as the file says; hidden_size / num_heads only where the reference implementation does so
  int64_t learned_positions = 0;  // rows of a position table (GPT-2); 0: rotary
  bool tied_embeddings = false;
  bool qkv_bias = false, o_bias = false, mlp_bias = false;
  bool fused_qkv = false, fused_gate_up = false;  // one matrix in the checkpoint (Phi-3, GPT-2, gpt-oss)
  QkNorm qk_norm = QkNorm::kNone;
  bool attention_sinks = false;  // one learned number per head in the softmax (gpt-oss)
  NormKind norm = NormKind::kRms;
  int64_t norms_per_layer = 2;  // of hidden_size each
  bool gated_mlp = true;
  std::string activation;
  std::vector<LayerConfig> layers;
  std::optional<MlaConfig> mla;
  std::optional<MoeConfig> moe;
  std::optional<VisionConfig> vision;
  std::vector<std::string> notes;  // what the reader ignored and a user should know

  int64_t num_layers() const { return static_cast<int64_t>(layers.size()); }
  int64_t windowed_layers() const;
  int64_t longest_window() const;  // 0: no layer slides
  int64_t moe_layers() const;
};

// `origin` names the file in errors. Errors: not JSON, too large, a field missing, of the wrong type or out of range
// (named), an architecture that is not supported (with the list of those that are). Never throws; time and memory are
// linear in the text plus the number of layers.
Result<ModelConfig> read_config(std::string_view json_text, std::string origin);

// One row per architecture read_config knows.
struct ArchitectureRow {
  std::string name;  // "LlamaForCausalLM"
  std::string what;  // one line
};
std::vector<ArchitectureRow> architecture_rows();

}  // namespace llmprof
