#include "ops/attention.h"

#include <algorithm>

namespace llmprof::ops {
namespace {

double as_double(int64_t value) { return static_cast<double>(value); }

Attention attention_of(const OpParams& params) {
  Attention attention;
  attention.batch = params.axis("batch");
  attention.heads = params.axis("heads");
  attention.kv_heads = params.axis("kv_heads");
  attention.key_width = attention.value_width = params.axis("head_dim");
  return attention;
}

Cost cost_of(const Attention& attention, DType dtype) {
  const double bytes = dtype_bytes(dtype);
  Cost cost;
  cost.flops = attention.flops();
  cost.read_bytes = bytes * (attention.query_elements() + attention.key_value_elements());
  cost.write_bytes = bytes * attention.result_elements();
  cost.matrix = true;
  return cost;
}

}  // namespace

double causal_pairs(int64_t queries, int64_t keys, int64_t window) {
  using Wide = unsigned __int128;  // lengths are up to 2^48
  if (window <= 0) window = keys;
  const int64_t before = std::max<int64_t>(keys - queries, 0);
  const int64_t seeing = std::min(queries, keys);
  // The first `growing` queries see all keys before them, the others exactly `window`.
  const int64_t growing = std::clamp<int64_t>(window - before, 0, seeing);
  const Wide g = static_cast<Wide>(growing);
  const Wide rest = static_cast<Wide>(seeing - growing) * static_cast<Wide>(window);
  return static_cast<double>(g * static_cast<Wide>(before) + g * (g + 1) / 2 + rest);
}

double Attention::full_pairs() const { return as_double(queries) * as_double(keys); }

double Attention::pairs() const {
  if (mask == AttentionMask::kFull) return full_pairs();
  if (mask == AttentionMask::kCausal) return causal_pairs(queries, keys, window);
  const int64_t seen = keys_read();
  return causal_pairs(seen, seen) + as_double(queries - seen) * as_double(seen);
}

int64_t Attention::keys_read() const {
  if (mask == AttentionMask::kCausalFromFirst) return std::min(queries, keys);
  return window > 0 ? std::min(keys, window - 1 + queries) : keys;
}

double Attention::flops_of(double pairs) const {
  return 2 * as_double(batch) * as_double(heads) * as_double(key_width + value_width) * pairs;
}

double Attention::query_elements() const {
  return as_double(batch) * as_double(heads) * as_double(queries) * as_double(key_width);
}

double Attention::key_value_elements() const {
  return as_double(batch) * as_double(kv_heads) * as_double(keys_read()) * as_double(key_width + value_width);
}

double Attention::result_elements() const {
  return as_double(batch) * as_double(heads) * as_double(queries) * as_double(value_width);
}

Cost attention_decode_cost(const OpParams& params) {
  Attention attention = attention_of(params);
  attention.queries = 1;
  attention.keys = params.axis("context");
  Cost cost = cost_of(attention, params.dtype);
  if (params.variant == "paged")
    cost.read_bytes += 4 * as_double(attention.batch) * as_double((attention.keys + kPageTokens - 1) / kPageTokens);
  return cost;
}

// Parts of split sums beside the arrays: a few blocks for each SM.
int64_t attention_decode_footprint(const OpParams& params) {
  return static_cast<int64_t>(attention_decode_cost(params).bytes()) + (int64_t{64} << 20);
}

int64_t attention_keys(const OpParams& params) { return std::max(params.axis("context"), params.axis("prompt")); }

Cost attention_cost(const OpParams& params) {
  Attention attention = attention_of(params);
  attention.queries = params.axis("prompt");
  attention.keys = attention_keys(params);
  if (params.variant == "causal") attention.mask = AttentionMask::kCausal;
  return cost_of(attention, params.dtype);
}

int64_t attention_footprint(const OpParams& params) {
  return static_cast<int64_t>(attention_cost(params).bytes()) + (int64_t{64} << 20);
}

}  // namespace llmprof::ops
