// Attention: scores of queries with the keys that a mask leaves them, and the values weighted by them. Softmax is not
// counted; each operand moves once. B sequences, Hq query heads, Hkv key heads, S queries, C keys, Dk and Dv elements
// of a head of keys and of values:
//
//   FLOPs     2 B Hq (Dk + Dv) pairs
//   elements  queries B Hq S Dk, keys and values B Hkv C (Dk + Dv), result B Hq S Dv
//   pairs     S C; causal: query i of S, of which the last is at the last key, sees P + i keys (P = C - S), in all
//             S P + S (S + 1) / 2; with a window of w keys min(P + i, w)
#pragma once

#include <cstdint>

#include "ops/op.h"

namespace llmprof::ops {

// (query, key) pairs of one head and sequence, exact to the last bit that a double holds. Window 0: none. With more
// queries than keys the first ones see none.
double causal_pairs(int64_t queries, int64_t keys, int64_t window = 0);

enum class AttentionMask : uint8_t {
  kFull,
  kCausal,           // the last query is at the last key
  kCausalFromFirst,  // the first query is at the first key, as libraries mean it: further keys are never read
};

struct Attention {
  int64_t batch = 1, heads = 1, kv_heads = 1, queries = 0, keys = 0;
  int64_t key_width = 0, value_width = 0;  // elements of a head
  AttentionMask mask = AttentionMask::kFull;
  int64_t window = 0;  // keys that a query sees at most, itself included; 0: all

  double pairs() const;       // that the mask keeps
  double full_pairs() const;  // all
  double flops() const { return flops_of(pairs()); }
  double flops_full() const { return flops_of(full_pairs()); }
  int64_t keys_read() const;  // distinct keys that the queries see
  double query_elements() const;
  double key_value_elements() const;
  double result_elements() const;

 private:
  double flops_of(double pairs) const;
};

constexpr int64_t kPageTokens = 16;  // keys of a page of a paged cache

// Axes batch, heads, kv_heads, head_dim, context; variants contiguous, paged: 4 B ceil(C / 16) bytes more are read
// then.
Cost attention_decode_cost(const OpParams& params);
int64_t attention_decode_footprint(const OpParams& params);
// Axes batch, heads, kv_heads, head_dim, prompt, context; variants causal, full.
int64_t attention_keys(const OpParams& params);  // context, but no fewer than prompt
Cost attention_cost(const OpParams& params);
int64_t attention_footprint(const OpParams& params);

}  // namespace llmprof::ops
