// What operators over rows cost: one FLOP per element read, and the least traffic, b bytes per element:
//
//   rmsnorm         2 T h b + h b; residual 4 T h b + h b
//   layernorm_gelu  2 T h b + 2 h b
//   softmax         2 R C b
//   quantise        T h (b + 1) + 4 T
//   dequantise      T h (b + 1) + 4 T
//   swiglu          3 T f b
//   rope            2 T (Hq + Hkv) D b + 4 T D
//   embedding       2 T h b + 4 T
//   kv_append       4 T Hkv D b + 4 T
//   sampling        B V b + 4 B (greedy), B V b + 12 B
//   routing         T E b + 12 T k + 4 (E + 1)
#pragma once

#include <cstdint>

#include "ops/op.h"

namespace llmprof::ops {

Cost rmsnorm_cost(const OpParams& params);
Cost layernorm_gelu_cost(const OpParams& params);
Cost softmax_cost(const OpParams& params);
Cost quantise_cost(const OpParams& params);
Cost dequantise_cost(const OpParams& params);  // b of the result
Cost swiglu_cost(const OpParams& params);
Cost rope_cost(const OpParams& params);
Cost embedding_cost(const OpParams& params);
Cost kv_append_cost(const OpParams& params);
Cost sampling_cost(const OpParams& params);
Cost routing_cost(const OpParams& params);

// Bytes of a set, where not all of an array is touched or there is more than what moves; of the others they are those
// of the cost.
int64_t embedding_footprint(const OpParams& params);
int64_t kv_append_footprint(const OpParams& params);
int64_t sampling_footprint(const OpParams& params);

}  // namespace llmprof::ops
