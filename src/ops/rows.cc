#include "ops/rows.h"

namespace llmprof::ops {
namespace {

double axis(const OpParams& params, std::string_view name) { return static_cast<double>(params.axis(name)); }

// Elements read and written, and what else of known bytes.
Cost cost_of(const OpParams& params, double read, double written, double read_bytes = 0, double written_bytes = 0) {
  const double bytes = dtype_bytes(params.dtype);
  Cost cost;
  cost.flops = read;
  cost.read_bytes = read * bytes + read_bytes;
  cost.write_bytes = written * bytes + written_bytes;
  return cost;
}

}  // namespace

Cost rmsnorm_cost(const OpParams& params) {
  const double hidden = axis(params, "hidden"), all = axis(params, "tokens") * hidden;
  if (params.variant == "residual") return cost_of(params, 2 * all + hidden, 2 * all);
  return cost_of(params, all + hidden, all);
}
Cost layernorm_gelu_cost(const OpParams& params) {
  const double hidden = axis(params, "hidden"), all = axis(params, "tokens") * hidden;
  return cost_of(params, all + 2 * hidden, all);
}
Cost softmax_cost(const OpParams& params) {
  const double all = axis(params, "rows") * axis(params, "columns");
  return cost_of(params, all, all);
}
Cost quantise_cost(const OpParams& params) {
  const double tokens = axis(params, "tokens"), all = tokens * axis(params, "hidden");
  return cost_of(params, all, 0, 0, all + 4 * tokens);
}
Cost dequantise_cost(const OpParams& params) {
  const double tokens = axis(params, "tokens"), all = tokens * axis(params, "hidden");
  Cost cost = cost_of(params, 0, all, all + 4 * tokens);
  cost.flops = all;
  return cost;
}
Cost swiglu_cost(const OpParams& params) {
  const double all = axis(params, "tokens") * axis(params, "ffn");
  return cost_of(params, 2 * all, all);
}
Cost rope_cost(const OpParams& params) {
  const double rows = axis(params, "tokens") * axis(params, "head_dim");
  const double all = rows * (axis(params, "heads") + axis(params, "kv_heads"));
  return cost_of(params, all, all, 4 * rows);
}
Cost embedding_cost(const OpParams& params) {
  const double tokens = axis(params, "tokens"), all = tokens * axis(params, "hidden");
  Cost cost = cost_of(params, all, all, 4 * tokens);
  cost.flops = 0;
  return cost;
}
Cost kv_append_cost(const OpParams& params) {
  const double tokens = axis(params, "tokens"), all = tokens * axis(params, "kv_heads") * axis(params, "head_dim");
  Cost cost = cost_of(params, 2 * all, 2 * all, 4 * tokens);
  cost.flops = 0;
  return cost;
}

Cost sampling_cost(const OpParams& params) {
  const double rows = axis(params, "batch"), all = rows * axis(params, "vocab");
  if (params.variant == "greedy") return cost_of(params, all, 0, 0, 4 * rows);
  return cost_of(params, all, 0, 4 * rows, 8 * rows);
}

Cost routing_cost(const OpParams& params) {
  const double tokens = axis(params, "tokens"), experts = axis(params, "experts");
  return cost_of(params, tokens * experts, 0, 0, 12 * tokens * axis(params, "k") + 4 * (experts + 1));
}

int64_t embedding_footprint(const OpParams& params) {
  const double rows = axis(params, "tokens") + axis(params, "vocab");
  return static_cast<int64_t>(rows * axis(params, "hidden") * dtype_bytes(params.dtype) + 4 * axis(params, "tokens"));
}
// The cache has four slots per token.
int64_t kv_append_footprint(const OpParams& params) {
  const double row = axis(params, "kv_heads") * axis(params, "head_dim") * dtype_bytes(params.dtype);
  return static_cast<int64_t>(axis(params, "tokens") * (10 * row + 4));
}

int64_t sampling_footprint(const OpParams& params) {
  return static_cast<int64_t>(sampling_cost(params).bytes()) + 12 * params.axis("batch");
}

}  // namespace llmprof::ops
