// The operator graph of the language model. The vision tower's is in vision_cost.cc.
#include <fmt/format.h>

#include <algorithm>

#include "model/cost.h"
#include "model/stage_builder.h"
#include "ops/attention.h"
#include "ops/product.h"

namespace llmprof {

double as_double(int64_t value) { return static_cast<double>(value); }

StageBuilder::StageBuilder(ModelStage stage, const RequestShape& shape)
    : weights_(shape.weights),
      wide_(shape.wide()),
      kv_(shape.kv),
      inputs_(shape.inputs),
      activation_bytes_(shape.activations.element_bytes()),
      kv_bytes_(shape.kv.element_bytes()) {
  cost_.stage = stage;
}

Operator& StageBuilder::add(std::string name, OperatorKind kind, std::string shape) {
  Operator& op = cost_.operators.emplace_back();
  op.name = std::move(name);
  op.layer = layer_;
  op.kind = kind;
  op.shape = std::move(shape);
  return op;
}

void StageBuilder::set_activations(Operator& op, double read_elements, double written_elements) {
  op.output_bytes = written_elements * activation_bytes_;
  op.activation_bytes = (read_elements + written_elements) * activation_bytes_;
}

double StageBuilder::input_passes(const Tensor& tensor) const {
  if (!inputs_ || !tensor.quantised) return 1;
  return inputs_->effective_bytes(tensor.in) / activation_bytes_;
}

namespace {
void set_product(Operator& op, const Tensor& tensor, int64_t rows, int64_t experts) {
  op.quantised = tensor.quantised;
  op.part = tensor.part;
  op.rows = rows;
  op.in = tensor.in;
  op.out = tensor.out;
  op.experts = experts;
}
}  // namespace

void StageBuilder::add_linear(const Tensor& tensor, int64_t rows) {
  Operator& op = add(tensor.name, tensor.part == TensorPart::kLmHead ? OperatorKind::kLmHead : OperatorKind::kLinear,
                     fmt::format("{} x {} -> {}", rows, tensor.in, tensor.out));
  set_product(op, tensor, rows, 1);
  op.flops = op.flops_full = ops::Gemm{1, as_double(rows), as_double(tensor.out), as_double(tensor.in)}.flops();
  op.weight_bytes = tensor.copy_bytes(weights_, wide_);
  set_activations(op, as_double(rows) * as_double(tensor.in) * input_passes(tensor),
                  as_double(rows) * as_double(tensor.out));
}

void StageBuilder::add_expert_linear(const Tensor& tensor, int64_t rows) {
  const double hit = ops::expected_experts(tensor.copies, tensor.used, rows);
  const double routed = as_double(rows) * as_double(tensor.used);
  Operator& op = add(tensor.name, OperatorKind::kLinear,
                     fmt::format("{} x {} -> {} on {:.4g} of {} experts", rows * tensor.used, tensor.in, tensor.out,
                                 hit, tensor.copies));
  set_product(op, tensor, rows * tensor.used, tensor.copies);
  op.flops = op.flops_full = ops::Gemm{1, routed, as_double(tensor.out), as_double(tensor.in)}.flops();
  op.weight_bytes = hit * tensor.copy_bytes(weights_, wide_);
  set_activations(op, routed * as_double(tensor.in) * input_passes(tensor), routed * as_double(tensor.out));
}

void StageBuilder::add_pointwise(std::string name, OperatorKind kind, int64_t rows, int64_t width, double read,
                                 double written, const Tensor* weights) {
  Operator& op = add(std::move(name), kind, fmt::format("{} x {}", rows, width));
  op.rows = rows;
  op.out = width;
  op.adds_residual = kind == OperatorKind::kNorm && read > 1;
  const double elements = as_double(rows) * as_double(width);
  set_activations(op, read * elements, written * elements);
  if (weights != nullptr) op.weight_bytes = weights->copy_bytes(weights_, wide_);
}

StageCost StageBuilder::finish() {
  for (const Operator& op : cost_.operators) {
    if (op.kind == OperatorKind::kLmHead)
      cost_.flops.lm_head += op.flops;
    else if (op.kind == OperatorKind::kAttention) {
      cost_.flops.attention_causal += op.flops;
      cost_.flops.attention_full += op.flops_full;
    } else {
      cost_.flops.linear += op.flops;
    }
    cost_.bytes.weights += op.weight_bytes;
    cost_.bytes.kv_read += op.kv_read_bytes;
    cost_.bytes.kv_write += op.kv_write_bytes;
    cost_.bytes.activations += op.activation_bytes;
  }
  return std::move(cost_);
}

namespace {

// One pass of the language model over `queries` new tokens of each sequence after `prefix` cached ones.
struct Pass {
  const ModelConfig& config;
  int64_t batch, queries, prefix;
  bool decode;

  int64_t rows() const { return batch * queries; }
  int64_t keys() const { return prefix + queries; }
};

std::string attention_shape(const Pass& pass, int64_t kv_heads, int64_t window, int64_t dim) {
  std::string shape = fmt::format("{} x {}/{} heads x {} queries x {} keys x {}", pass.batch, pass.config.num_heads,
                                  kv_heads, pass.queries, pass.keys(), dim);
  if (window != 0) shape += fmt::format(" (window {})", window);
  return shape;
}

void add_cache_write(StageBuilder& b, const Pass& pass) {
  const double elements = kv_bytes_per_token_and_layer(pass.config, b.kv_format()) / b.kv_bytes();
  Operator& op = b.add("kv_cache_write", OperatorKind::kCacheWrite, fmt::format("{} x {}", pass.rows(), elements));
  op.rows = pass.rows();
  op.out = static_cast<int64_t>(elements);
  b.set_activations(op, as_double(pass.rows()) * elements, 0);
  op.kv_write_bytes = as_double(pass.rows()) * elements * b.kv_bytes();
}

ops::Attention attention_of(const Pass& pass, int64_t window, int64_t kv_heads, int64_t key_width,
                            int64_t value_width) {
  return {pass.batch,  pass.config.num_heads,       kv_heads, pass.queries, pass.keys(), key_width,
          value_width, ops::AttentionMask::kCausal, window};
}

// Attention as one fused operator. `key_width` and `value_width` are what one head multiplies per pair.
Operator& add_attention_core(StageBuilder& b, const Pass& pass, int64_t window, int64_t kv_heads, int64_t key_width,
                             int64_t value_width) {
  Operator& op = b.add("attention", OperatorKind::kAttention, attention_shape(pass, kv_heads, window, key_width));
  op.attention = attention_of(pass, window, kv_heads, key_width, value_width);
  op.flops = op.attention->flops();
  op.flops_full = op.attention->flops_full();
  return op;
}

void add_standard_attention(StageBuilder& b, const Pass& pass, const LayerConfig& layer,
                            const std::vector<Tensor>& tensors) {
  const ModelConfig& c = pass.config;
  for (const Tensor& tensor : tensors)
    if (tensor.part == TensorPart::kAttention && tensor.linear && tensor.name != "o_proj")
      b.add_linear(tensor, pass.rows());
  const ops::Attention attention = attention_of(pass, layer.window, c.num_kv_heads, c.head_dim, c.head_dim);
  if (c.learned_positions == 0) {
    b.add_pointwise(c.qk_norm == QkNorm::kNone ? "rope" : "qk_norm_rope", OperatorKind::kElementwise, pass.rows(),
                    (c.num_heads + c.num_kv_heads) * c.head_dim, 1, 1, nullptr);
    b.last().attention = attention;
  }
  add_cache_write(b, pass);
  b.last().attention = attention;
  Operator& op = add_attention_core(b, pass, layer.window, c.num_kv_heads, c.head_dim, c.head_dim);
  const double heads = as_double(pass.rows()) * as_double(c.num_heads * c.head_dim);
  double written = heads;
  for (const Tensor& tensor : tensors)
    if (tensor.name == "o_proj") written *= b.input_passes(tensor);
  b.set_activations(op, heads, written);
  op.kv_read_bytes = attention.key_value_elements() * b.kv_bytes();
}

// Latent attention. Prefill rebuilds keys and values of all tokens (kv_b_proj); decode multiplies kv_b_proj's halves
// into the query and the result instead, and attends to the latents themselves.
void add_latent_attention(StageBuilder& b, const Pass& pass, const std::vector<Tensor>& tensors) {
  const ModelConfig& c = pass.config;
  const MlaConfig& mla = *c.mla;
  Tensor expand;
  for (const Tensor& tensor : tensors) {
    if (tensor.name == "kv_b_proj")
      expand = tensor;
    else if (tensor.name == "q_a_layernorm" || tensor.name == "kv_a_layernorm")
      b.add_pointwise(tensor.name, OperatorKind::kNorm, pass.rows(), tensor.out, 1, 1, &tensor);
    else if (tensor.part == TensorPart::kAttention && tensor.linear && tensor.name != "o_proj")
      b.add_linear(tensor, pass.rows());
  }
  b.add_pointwise("rope", OperatorKind::kElementwise, pass.rows(), (c.num_heads + 1) * mla.qk_rope_dim, 1, 1, nullptr);
  add_cache_write(b, pass);
  const double latents =
      as_double(pass.batch) * as_double(pass.keys()) * kv_bytes_per_token_and_layer(c, b.kv_format());
  const double rows = as_double(pass.rows()), heads = as_double(c.num_heads);
  const int64_t qk = mla.qk_nope_dim + mla.qk_rope_dim;
  if (!pass.decode) {
    b.add_linear(expand, pass.batch * pass.keys());
    Operator& grow = b.last();
    b.set_activations(grow, 0, as_double(pass.batch) * as_double(pass.keys()) * as_double(expand.out));
    grow.kv_read_bytes = latents;
    Operator& op = add_attention_core(b, pass, 0, c.num_heads, qk, mla.v_head_dim);
    const double expanded = as_double(pass.batch) * as_double(pass.keys()) * heads * as_double(qk + mla.v_head_dim);
    b.set_activations(op, rows * heads * as_double(qk) + expanded, rows * heads * as_double(mla.v_head_dim));
    return;
  }
  const int64_t latent = mla.kv_lora_rank;
  const auto add_half = [&](const char* name, int64_t width, int64_t in, int64_t out) {
    Operator& op =
        b.add(name, OperatorKind::kLinear, fmt::format("{} x {} heads x {} -> {}", pass.rows(), c.num_heads, in, out));
    op.part = TensorPart::kAttention;
    op.flops = op.flops_full = 2 * rows * heads * as_double(width) * as_double(latent);
    op.weight_bytes = b.copy_bytes(expand) * as_double(width) / as_double(mla.qk_nope_dim + mla.v_head_dim);
    b.set_activations(op, rows * heads * as_double(in), rows * heads * as_double(out));
  };
  add_half("absorb_k", mla.qk_nope_dim, mla.qk_nope_dim, latent);
  Operator& op = add_attention_core(b, pass, 0, 1, latent + mla.qk_rope_dim, latent);
  b.set_activations(op, rows * heads * as_double(latent + mla.qk_rope_dim), rows * heads * as_double(latent));
  op.kv_read_bytes = latents;
  add_half("absorb_v", mla.v_head_dim, latent, mla.v_head_dim);
}

void add_mlp(StageBuilder& b, const Pass& pass, const LayerConfig& layer, const std::vector<Tensor>& tensors) {
  const ModelConfig& c = pass.config;
  const double read = c.gated_mlp ? 2 : 1;
  for (const Tensor& tensor : tensors) {
    if (!tensor.linear ||
        (tensor.part != TensorPart::kMlp && tensor.part != TensorPart::kExpert && tensor.part != TensorPart::kRouter))
      continue;
    const bool expert = tensor.part == TensorPart::kExpert;
    const bool last = tensor.part != TensorPart::kRouter && tensor.out == c.hidden_size &&
                      (tensor.name.ends_with("down_proj") || tensor.name.ends_with("fc_out"));
    if (last) {
      const std::string prefix = tensor.name.substr(0, tensor.name.find('.') + 1);
      b.add_pointwise(prefix + "activation", OperatorKind::kElementwise, pass.rows() * (expert ? tensor.used : 1),
                      tensor.in, read, b.input_passes(tensor), nullptr);
    }
    if (expert)
      b.add_expert_linear(tensor, pass.rows());
    else
      b.add_linear(tensor, pass.rows());
  }
  if (layer.moe && c.moe) {
    const double inputs = as_double(c.moe->top_k) + (c.moe->shared_intermediate_size != 0 ? 1 : 0);
    b.add_pointwise("experts.combine", OperatorKind::kElementwise, pass.rows(), c.hidden_size, inputs, 1, nullptr);
  }
}

void add_layer(StageBuilder& b, const Pass& pass, int64_t index) {
  const ModelConfig& c = pass.config;
  const LayerConfig& layer = c.layers[static_cast<size_t>(index)];
  const std::vector<Tensor> tensors = layer_tensors(c, layer);
  const bool four = c.norms_per_layer == 4;
  b.set_layer(index);
  // A norm that takes in the residual reads and writes two tensors; one between two additions, one.
  const auto add_norm = [&](std::string_view name, double passes, double result = 1) {
    for (const Tensor& tensor : tensors)
      if (tensor.name == name)
        b.add_pointwise(tensor.name, OperatorKind::kNorm, pass.rows(), c.hidden_size, passes, passes - 1 + result,
                        &tensor);
  };
  // What the norm before a part writes: quantised if that part multiplies it so. Experts are chosen by a router that is
  // not, so there it stays wide.
  const auto result_for = [&](TensorPart part) {
    for (const Tensor& tensor : tensors)
      if (tensor.part == part && tensor.linear) return b.input_passes(tensor);
    return 1.0;
  };
  const double for_mlp = layer.moe ? 1 : result_for(TensorPart::kMlp);
  add_norm("input_layernorm", index == 0 ? 1 : 2, result_for(TensorPart::kAttention));
  if (c.mla)
    add_latent_attention(b, pass, tensors);
  else
    add_standard_attention(b, pass, layer, tensors);
  for (const Tensor& tensor : tensors)
    if (tensor.name == "o_proj") b.add_linear(tensor, pass.rows());
  add_norm("post_attention_layernorm", four ? 1 : 2, four ? 1 : for_mlp);
  add_norm("pre_feedforward_layernorm", 2, for_mlp);
  add_mlp(b, pass, layer, tensors);
  add_norm("post_feedforward_layernorm", 1);
}

StageCost run_pass(const Pass& pass, const RequestShape& shape) {
  const ModelConfig& c = pass.config;
  StageBuilder b(pass.decode ? ModelStage::kDecode : ModelStage::kPrefill, shape);
  // A look-up touches one row per token, never the whole table.
  for (const Tensor& table : embedding_tensors(c)) {
    b.add_pointwise(table.name, OperatorKind::kGather, pass.rows(), c.hidden_size, 0, 1, nullptr);
    b.last().weight_bytes = as_double(pass.rows()) * as_double(c.hidden_size) * b.wide_bytes();
  }
  for (int64_t i = 0; i < c.num_layers(); ++i) add_layer(b, pass, i);
  b.set_layer(-1);
  const std::vector<Tensor> head = head_tensors(c);
  b.add_pointwise("norm", OperatorKind::kNorm, pass.rows(), c.hidden_size, 2, 1, head.data());
  b.add_linear(head[1], pass.batch);
  StageCost cost = b.finish();
  cost.batch = pass.batch;
  cost.new_tokens = pass.queries;
  cost.context = pass.keys();
  return cost;
}

}  // namespace

StageCost prefill_cost(const ModelConfig& config, const RequestShape& w) {
  return run_pass({config, w.batch, w.prompt, w.prefix, false}, w);
}

StageCost decode_cost(const ModelConfig& config, const RequestShape& w) {
  return run_pass({config, w.batch, 1, w.decode_context() - 1, true}, w);
}

}  // namespace llmprof
