#include "device/attention_costs.h"

#include <algorithm>

namespace llmprof::device {
namespace {

// Of one key head, in elements, and the FLOPs of all pairs of a query head.
struct Sizes {
  double sequences, heads, kv_heads, head, bytes;
  explicit Sizes(const OpParams& params)
      : sequences(static_cast<double>(params.axis("batch"))),
        heads(static_cast<double>(params.axis("heads"))),
        kv_heads(static_cast<double>(params.axis("kv_heads"))),
        head(static_cast<double>(params.axis("head_dim"))),
        bytes(dtype_bytes(params.dtype)) {}
  Cost cost(double queries, double keys, double pairs) const {
    Cost cost;
    cost.flops = 4 * sequences * heads * pairs * head;
    cost.read_bytes = bytes * sequences * head * (queries * heads + 2 * keys * kv_heads);
    cost.write_bytes = bytes * sequences * head * queries * heads;
    cost.matrix = true;
    return cost;
  }
};

}  // namespace

Cost attention_decode_cost(const OpParams& params) {
  const Sizes sizes(params);
  const int64_t context = params.axis("context");
  Cost cost = sizes.cost(1, static_cast<double>(context), static_cast<double>(context));
  if (params.variant == "paged")
    cost.read_bytes += 4 * sizes.sequences * static_cast<double>((context + kPageTokens - 1) / kPageTokens);
  return cost;
}

// Parts of split sums beside the arrays: a few blocks for each SM.
int64_t attention_decode_footprint(const OpParams& params) {
  return static_cast<int64_t>(attention_decode_cost(params).bytes()) + (int64_t{64} << 20);
}

int64_t attention_keys(const OpParams& params) { return std::max(params.axis("context"), params.axis("prompt")); }

Cost attention_cost(const OpParams& params) {
  const double queries = static_cast<double>(params.axis("prompt")), keys = static_cast<double>(attention_keys(params));
  const double pairs =
      params.variant == "causal" ? queries * (keys - queries) + queries * (queries + 1) / 2 : queries * keys;
  return Sizes(params).cost(queries, keys, pairs);
}

int64_t attention_footprint(const OpParams& params) {
  return static_cast<int64_t>(attention_cost(params).bytes()) + (int64_t{64} << 20);
}

}  // namespace llmprof::device
