// What attention costs, as recordings are judged (derive/work_formulas.h): scores and weighted values, no arithmetic
// for the softmax; each operand once. b bytes per element, D elements of a head, C keys, S queries, B sequences:
//
//   attention_decode   4 B Hq C D FLOPs; reads b (2 B C Hkv D + B Hq D), paged 4 B ceil(C / 16) more; writes b B Hq D
//   attention          4 B Hq pairs D FLOPs, pairs = S C, causal S (C - S) + S (S + 1) / 2; reads b (B S Hq D +
//                      2 B C Hkv D); writes b B S Hq D
#pragma once

#include <cstdint>

#include "device/op.h"

namespace llmprof::device {

constexpr int64_t kPageTokens = 16;  // keys of a page of a paged cache

// Axes batch, heads, kv_heads, head_dim, context; variants contiguous, paged.
Cost attention_decode_cost(const OpParams& params);
int64_t attention_decode_footprint(const OpParams& params);
// Axes batch, heads, kv_heads, head_dim, prompt, context; variants causal, full.
int64_t attention_keys(const OpParams& params);  // context, but no fewer than prompt
Cost attention_cost(const OpParams& params);
int64_t attention_footprint(const OpParams& params);

}  // namespace llmprof::device
