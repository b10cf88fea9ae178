// Attention in fp64 over sampled queries: out = softmax(scale * q k^T) v, query heads in groups over key heads.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/result.h"
#include "device/device.h"
#include "kernels/op.h"
#include "kernels/reference/rows.h"

namespace llmprof::kernels {

// `out`, with what its tolerance follows from: the sum of the absolute values of its terms, and the root of the sum of
// their squares, since weights are rounded to the type of the values before they are multiplied.
struct AttentionRow {
  Row out, terms, squares;
};
// One query over the first `keys` rows, each of q.size() elements.
AttentionRow attention_row(std::span<const double> q, std::span<const float> k, std::span<const float> v, int64_t keys,
                           double scale);

// q and out: [batch][heads][queries][head_dim], dense. Causal: query i sees keys up to keys - queries + i.
struct AttentionShape {
  int64_t batch = 1, heads = 1, kv_heads = 1, head_dim = 64, queries = 1, keys = 1;
  DType dtype = DType::kBf16;
  bool causal = false;
  double scale() const;  // 1 / sqrt(head_dim)
};
// All rows of keys or values that a head of a sequence sees: [keys][head_dim].
using HeadReader = std::function<Result<std::vector<float>>(int64_t sequence, int64_t kv_head)>;
// Of [batch][kv_heads][keys][head_dim], dense.
HeadReader dense_heads(Device& device, const Buffer& buffer, const AttentionShape& shape);

// Of a cache in pages of ops::kPageTokens (ops/attention.h), [page][token][kv_heads][head_dim]: page i of sequence s is
// table[s * pages of a sequence + i].
HeadReader paged_heads(Device& device, const Buffer& buffer, const AttentionShape& shape, std::vector<int32_t> table);
// Every one of `pages` once, in an order that is not the cache's and differs from set to set.
std::vector<int32_t> page_table(int64_t pages, int set);

// What sampled rows of the output must be. It serves every candidate of a case.
struct AttentionExpected {
  std::vector<int64_t> rows;  // of batch * heads * queries
  std::vector<AttentionRow> values;
};
// 16 rows, the first and the last among them; more of short contexts.
Result<AttentionExpected> expect_attention(Device& device, const AttentionShape& shape, const Buffer& q,
                                           const HeadReader& k, const HeadReader& v, uint64_t seed);
// These rows, and whether others spread over the output were written. `out` was poisoned before the kernel ran.
Result<Check> check_attention(Device& device, const AttentionShape& shape, const Buffer& out,
                              const AttentionExpected& expected);

}  // namespace llmprof::kernels
