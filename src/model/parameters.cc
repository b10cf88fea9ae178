#include "model/parameters.h"

#include <fmt/format.h>

namespace llmprof {
namespace {

int64_t norm_size(NormKind kind, int64_t width) { return kind == NormKind::kLayer ? 2 * width : width; }

Tensor vector_of(std::string name, TensorPart part, int64_t size) {
  Tensor tensor;
  tensor.name = std::move(name);
  tensor.part = part;
  tensor.out = size;
  return tensor;
}

Tensor matrix(std::string name, TensorPart part, int64_t out, int64_t in, bool bias) {
  Tensor tensor = vector_of(std::move(name), part, out);
  tensor.in = in;
  tensor.bias = bias ? out : 0;
  tensor.linear = true;
  tensor.quantised = true;
  return tensor;
}

// Routers, the tower and the projector stay wide in quantised checkpoints.
Tensor wide_matrix(std::string name, TensorPart part, int64_t out, int64_t in, bool bias) {
  Tensor tensor = matrix(std::move(name), part, out, in, bias);
  tensor.quantised = false;
  return tensor;
}

void add_mla(const ModelConfig& c, std::vector<Tensor>& out) {
  const MlaConfig& mla = *c.mla;
  const int64_t q_width = c.num_heads * (mla.qk_nope_dim + mla.qk_rope_dim);
  constexpr TensorPart kPart = TensorPart::kAttention;
  if (mla.q_lora_rank != 0) {
    out.push_back(matrix("q_a_proj", kPart, mla.q_lora_rank, c.hidden_size, false));
    out.push_back(vector_of("q_a_layernorm", TensorPart::kNorm, mla.q_lora_rank));
    out.push_back(matrix("q_b_proj", kPart, q_width, mla.q_lora_rank, false));
  } else {
    out.push_back(matrix("q_proj", kPart, q_width, c.hidden_size, false));
  }
  out.push_back(matrix("kv_a_proj_with_mqa", kPart, mla.kv_lora_rank + mla.qk_rope_dim, c.hidden_size, false));
  out.push_back(vector_of("kv_a_layernorm", TensorPart::kNorm, mla.kv_lora_rank));
  out.push_back(matrix("kv_b_proj", kPart, c.num_heads * (mla.qk_nope_dim + mla.v_head_dim), mla.kv_lora_rank, false));
  out.push_back(matrix("o_proj", kPart, c.hidden_size, c.num_heads * mla.v_head_dim, false));
}

void add_attention(const ModelConfig& c, std::vector<Tensor>& out) {
  const size_t first = out.size();
  if (c.mla) {
    add_mla(c, out);
  } else {
    constexpr TensorPart kPart = TensorPart::kAttention;
    const int64_t q = c.num_heads * c.head_dim, kv = c.num_kv_heads * c.head_dim;
    if (c.fused_qkv) {
      out.push_back(matrix("qkv_proj", kPart, q + 2 * kv, c.hidden_size, c.qkv_bias));
    } else {
      out.push_back(matrix("q_proj", kPart, q, c.hidden_size, c.qkv_bias));
      out.push_back(matrix("k_proj", kPart, kv, c.hidden_size, c.qkv_bias));
      out.push_back(matrix("v_proj", kPart, kv, c.hidden_size, c.qkv_bias));
    }
    if (c.qk_norm != QkNorm::kNone) {
      const bool per_head = c.qk_norm == QkNorm::kPerHead;
      out.push_back(vector_of("q_norm", TensorPart::kNorm, per_head ? c.head_dim : q));
      out.push_back(vector_of("k_norm", TensorPart::kNorm, per_head ? c.head_dim : kv));
    }
    if (c.attention_sinks) out.push_back(vector_of("sinks", kPart, c.num_heads));
    out.push_back(matrix("o_proj", kPart, c.hidden_size, q, c.o_bias));
  }
  if (c.quantization && c.quantization->attention_kept)
    for (size_t i = first; i < out.size(); ++i) out[i].quantised = false;
}

void add_mlp(const ModelConfig& c, TensorPart part, const std::string& prefix, int64_t width, bool bias, bool fused,
             std::vector<Tensor>& out) {
  if (!c.gated_mlp) {
    out.push_back(matrix(prefix + "fc_in", part, width, c.hidden_size, bias));
    out.push_back(matrix(prefix + "fc_out", part, c.hidden_size, width, bias));
    return;
  }
  if (fused) {
    out.push_back(matrix(prefix + "gate_up_proj", part, 2 * width, c.hidden_size, bias));
  } else {
    out.push_back(matrix(prefix + "gate_proj", part, width, c.hidden_size, bias));
    out.push_back(matrix(prefix + "up_proj", part, width, c.hidden_size, bias));
  }
  out.push_back(matrix(prefix + "down_proj", part, c.hidden_size, width, bias));
}

void add_experts(const ModelConfig& c, std::vector<Tensor>& out) {
  const MoeConfig& moe = *c.moe;
  out.push_back(wide_matrix("router", TensorPart::kRouter, moe.experts, c.hidden_size, moe.router_bias));
  if (moe.correction_bias) out.push_back(vector_of("e_score_correction_bias", TensorPart::kRouter, moe.experts));
  const size_t first = out.size();
  add_mlp(c, TensorPart::kExpert, "experts.", moe.intermediate_size, moe.expert_bias, c.fused_gate_up, out);
  for (size_t i = first; i < out.size(); ++i) {
    out[i].copies = moe.experts;
    out[i].used = moe.top_k;
  }
  if (moe.shared_intermediate_size != 0) {
    add_mlp(c, TensorPart::kMlp, "shared_experts.", moe.shared_intermediate_size, false, false, out);
    if (moe.shared_gate) out.push_back(wide_matrix("shared_expert_gate", TensorPart::kRouter, 1, c.hidden_size, false));
  }
}

}  // namespace

std::string_view name_of(TensorPart part) {
  switch (part) {
    case TensorPart::kEmbedding:
      return "embedding";
    case TensorPart::kAttention:
      return "attention";
    case TensorPart::kMlp:
      return "mlp";
    case TensorPart::kRouter:
      return "router";
    case TensorPart::kExpert:
      return "experts";
    case TensorPart::kNorm:
      return "norm";
    case TensorPart::kLmHead:
      return "lm_head";
    case TensorPart::kVision:
      return "vision";
    case TensorPart::kProjector:
      return "projector";
  }
  return "norm";
}

double Tensor::copy_bytes(const NumberFormat& weights, const NumberFormat& wide) const {
  const double vectors = static_cast<double>(bias) * wide.element_bytes();
  if (quantised) return static_cast<double>(weights.matrix_bytes(out, in)) + vectors;
  return static_cast<double>(matrix_elements()) * wide.element_bytes() + vectors;
}

double Tensor::bytes(const NumberFormat& weights, const NumberFormat& wide) const {
  return static_cast<double>(copies) * copy_bytes(weights, wide);
}

std::vector<Tensor> layer_tensors(const ModelConfig& config, const LayerConfig& layer) {
  std::vector<Tensor> out;
  const int64_t norm = norm_size(config.norm, config.hidden_size);
  const bool four = config.norms_per_layer == 4;
  out.push_back(vector_of("input_layernorm", TensorPart::kNorm, norm));
  add_attention(config, out);
  out.push_back(vector_of("post_attention_layernorm", TensorPart::kNorm, norm));
  if (four) out.push_back(vector_of("pre_feedforward_layernorm", TensorPart::kNorm, norm));
  if (layer.moe && config.moe) {
    add_experts(config, out);
  } else {
    add_mlp(config, TensorPart::kMlp, "", config.intermediate_size, config.mlp_bias, config.fused_gate_up, out);
  }
  if (four) out.push_back(vector_of("post_feedforward_layernorm", TensorPart::kNorm, norm));
  return out;
}

std::vector<Tensor> embedding_tensors(const ModelConfig& config) {
  std::vector<Tensor> out = {vector_of("embed_tokens", TensorPart::kEmbedding, config.vocab_size)};
  out[0].in = config.hidden_size;
  if (config.learned_positions != 0) {
    out.push_back(vector_of("embed_positions", TensorPart::kEmbedding, config.learned_positions));
    out[1].in = config.hidden_size;
  }
  return out;
}

std::vector<Tensor> head_tensors(const ModelConfig& config) {
  Tensor head = wide_matrix("lm_head", TensorPart::kLmHead, config.vocab_size, config.hidden_size, false);
  if (config.tied_embeddings) head.copies = 0;
  return {vector_of("norm", TensorPart::kNorm, norm_size(config.norm, config.hidden_size)), head};
}

std::vector<Tensor> vision_block_tensors(const VisionConfig& v) {
  constexpr TensorPart kPart = TensorPart::kVision;
  std::vector<Tensor> out;
  out.push_back(vector_of("norm1", TensorPart::kNorm, norm_size(v.norm, v.hidden_size)));
  out.push_back(wide_matrix("qkv", kPart, 3 * v.hidden_size, v.hidden_size, true));
  out.push_back(wide_matrix("attn_out", kPart, v.hidden_size, v.hidden_size, true));
  out.push_back(vector_of("norm2", TensorPart::kNorm, norm_size(v.norm, v.hidden_size)));
  if (v.gated_mlp) out.push_back(wide_matrix("mlp.gate", kPart, v.intermediate_size, v.hidden_size, true));
  out.push_back(wide_matrix("mlp.up", kPart, v.intermediate_size, v.hidden_size, true));
  out.push_back(wide_matrix("mlp.down", kPart, v.hidden_size, v.intermediate_size, true));
  return out;
}

std::vector<Tensor> projector_tensors(const VisionConfig& v) {
  std::vector<Tensor> out;
  const int64_t merged = v.hidden_size * v.merge * v.merge;
  switch (v.projector) {
    case ProjectorKind::kPatchMerger:
      out.push_back(vector_of("merger.norm", TensorPart::kVision, norm_size(v.norm, v.hidden_size)));
      out.push_back(wide_matrix("merger.fc1", TensorPart::kVision, merged, merged, true));
      out.push_back(wide_matrix("merger.fc2", TensorPart::kVision, v.output_size, merged, true));
      break;
    case ProjectorKind::kTwoLayer:
      out.push_back(wide_matrix("projector.linear_1", TensorPart::kProjector, v.output_size, v.hidden_size, true));
      out.push_back(wide_matrix("projector.linear_2", TensorPart::kProjector, v.output_size, v.output_size, true));
      break;
    case ProjectorKind::kPooledLinear:
      out.push_back(vector_of("projector.norm", TensorPart::kProjector, v.hidden_size));
      out.push_back(wide_matrix("projector.linear", TensorPart::kProjector, v.output_size, v.hidden_size, false));
      break;
  }
  return out;
}

std::vector<Tensor> vision_tensors(const ModelConfig& config) {
  std::vector<Tensor> out;
  if (!config.vision) return out;
  const VisionConfig& v = *config.vision;
  constexpr TensorPart kPart = TensorPart::kVision;
  const int64_t patch = v.channels * v.temporal_patch * v.patch_size * v.patch_size;
  out.push_back(wide_matrix("patch_embed", kPart, v.hidden_size, patch, v.patch_bias));
  if (v.class_token) out.push_back(vector_of("class_embedding", kPart, v.hidden_size));
  if (v.positions != 0) {
    out.push_back(vector_of("position_embedding", kPart, v.positions));
    out.back().in = v.hidden_size;
  }
  if (v.pre_norm) out.push_back(vector_of("pre_layernorm", kPart, norm_size(v.norm, v.hidden_size)));
  for (Tensor tensor : vision_block_tensors(v)) {
    tensor.name.insert(0, "blocks.");
    tensor.part = kPart;
    tensor.copies = tensor.used = v.depth;
    out.push_back(std::move(tensor));
  }
  if (v.post_norm) out.push_back(vector_of("post_layernorm", kPart, norm_size(v.norm, v.hidden_size)));
  for (Tensor& tensor : projector_tensors(v)) out.push_back(std::move(tensor));
  return out;
}

namespace {

LayerParams count_layer(const std::vector<Tensor>& tensors, const LayerConfig& layer) {
  LayerParams params;
  params.kind = layer.moe ? "moe" : "dense";
  if (layer.window != 0) params.kind += fmt::format(", window {}", layer.window);
  for (const Tensor& tensor : tensors) {
    params.total += tensor.params();
    params.active += tensor.used_params();
    if (tensor.part == TensorPart::kAttention) params.attention += tensor.params();
    if (tensor.part == TensorPart::kMlp) params.mlp += tensor.params();
    if (tensor.part == TensorPart::kRouter) params.router += tensor.params();
    if (tensor.part == TensorPart::kExpert) params.experts += tensor.params();
    if (tensor.part == TensorPart::kNorm) params.norms += tensor.params();
  }
  return params;
}

}  // namespace

Params count_params(const ModelConfig& config) {
  Params params;
  for (const Tensor& tensor : embedding_tensors(config)) params.embedding += tensor.params();
  const std::vector<Tensor> head = head_tensors(config);
  params.final_norm = head[0].params();
  params.lm_head = head[1].matrix_elements();
  params.lm_head_tied = config.tied_embeddings;
  for (const Tensor& tensor : vision_tensors(config))
    (tensor.part == TensorPart::kProjector ? params.projector : params.vision) += tensor.params();
  const int64_t outside = params.embedding + head[0].params() + head[1].params() + params.vision + params.projector;
  params.total = params.active_per_token = outside;
  for (int64_t i = 0; i < config.num_layers(); ++i) {
    const LayerConfig& layer = config.layers[static_cast<size_t>(i)];
    const std::vector<Tensor> tensors = layer_tensors(config, layer);
    LayerParams& row = params.by_layer.emplace_back(count_layer(tensors, layer));
    row.layer = i;
    params.total += row.total;
    params.active_per_token += row.active;
    for (const Tensor& tensor : tensors)
      if (tensor.linear) params.linear_per_token += tensor.used * tensor.matrix_elements();
  }
  return params;
}

Status check_size(const ModelConfig& config) {
  // In doubles first: the exact counts are only taken once they are known to fit.
  double total = 0;
  const auto add = [&total](const std::vector<Tensor>& tensors) {
    for (const Tensor& t : tensors)
      total += static_cast<double>(t.copies) *
               (static_cast<double>(t.out) * static_cast<double>(t.in) + static_cast<double>(t.bias));
  };
  add(embedding_tensors(config));
  add(head_tensors(config));
  add(vision_tensors(config));
  for (const LayerConfig& layer : config.layers) add(layer_tensors(config, layer));
  if (total > static_cast<double>(kMaxParameters))
    return fail(fmt::format("the config describes {:.3g} parameters, more than the limit of {:.0e}", total,
                            static_cast<double>(kMaxParameters)),
                config.origin, "check the sizes in the config");
  return {};
}

double weight_bytes(const ModelConfig& config, const NumberFormat& weights, const NumberFormat& wide) {
  double total = 0;
  const auto add = [&](const std::vector<Tensor>& tensors) {
    for (const Tensor& tensor : tensors) total += tensor.bytes(weights, wide);
  };
  add(embedding_tensors(config));
  add(head_tensors(config));
  add(vision_tensors(config));
  for (const LayerConfig& layer : config.layers) add(layer_tensors(config, layer));
  return total;
}

}  // namespace llmprof
