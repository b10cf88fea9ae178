// Pairs, keys and costs of attention, by counting and by hand.
#include <gtest/gtest.h>

#include <algorithm>

#include "ops/attention.h"
#include "ops_params.h"

namespace llmprof::ops {
namespace {

TEST(Attention, PairsAndKeysEqualTheSumsTheyReplace) {
  for (int64_t queries = 1; queries < 20; ++queries) {
    for (int64_t keys = 1; keys < 40; ++keys) {
      for (int64_t window = 0; window < 30; ++window) {
        int64_t pairs = 0, read = 0;
        for (int64_t i = 1; i <= queries; ++i) {
          const int64_t seen = std::max<int64_t>(keys - queries + i, 0);
          pairs += window > 0 ? std::min(seen, window) : seen;
        }
        for (int64_t key = 1; key <= keys; ++key) {
          // Seen by the first query that is at or after it, if by any.
          const int64_t query = std::max(key, keys - queries + 1);
          read += window == 0 || query - key < window ? 1 : 0;
        }
        const Attention attention{1, 1, 1, queries, keys, 1, 1, AttentionMask::kCausal, window};
        ASSERT_EQ(attention.pairs(), static_cast<double>(pairs)) << queries << " " << keys << " " << window;
        ASSERT_EQ(attention.keys_read(), read) << queries << " " << keys << " " << window;
      }
    }
  }
  // S*P + S(S+1)/2 and w*S - w(w-1)/2, the closed forms of the literature.
  EXPECT_EQ(causal_pairs(100, 130), 100 * 30 + 100 * 101 / 2);
  EXPECT_EQ(causal_pairs(100, 100, 16), 16 * 100 - 16 * 15 / 2);
  EXPECT_EQ(causal_pairs(1, 513), 513);
  EXPECT_EQ(causal_pairs(int64_t{1} << 32, int64_t{1} << 33), 0x1.8p64 + 0x1p31) << "beyond 64 bits, rounded once";
}

TEST(Attention, OfALibraryTheFirstQueryIsAtTheFirstKey) {
  for (int64_t queries = 1; queries < 12; ++queries) {
    for (int64_t keys = 1; keys < 12; ++keys) {
      double pairs = 0;
      for (int64_t i = 1; i <= queries; ++i) pairs += static_cast<double>(std::min(i, keys));
      const Attention attention{1, 1, 1, queries, keys, 1, 1, AttentionMask::kCausalFromFirst};
      EXPECT_EQ(attention.pairs(), pairs) << queries << " " << keys;
      EXPECT_EQ(attention.keys_read(), std::min(queries, keys));
    }
  }
}

TEST(AttentionCosts, Decode) {
  OpParams params =
      params_of({{"batch", 2}, {"heads", 8}, {"kv_heads", 2}, {"head_dim", 64}, {"context", 100}}, DType::kBf16);
  const Cost cost = attention_decode_cost(params);
  EXPECT_EQ(cost.flops, 4 * 2 * 8 * 100 * 64);
  EXPECT_EQ(cost.read_bytes, 2 * (2 * 2 * 100 * 2 * 64 + 2 * 8 * 64));
  EXPECT_EQ(cost.write_bytes, 2 * 2 * 8 * 64);
  EXPECT_TRUE(cost.matrix);
  params.variant = "paged";
  EXPECT_EQ(attention_decode_cost(params).read_bytes, cost.read_bytes + 4 * 2 * 7) << "seven pages of a sequence";
}

TEST(AttentionCosts, Prompt) {
  OpParams params =
      params_of({{"batch", 2}, {"heads", 8}, {"kv_heads", 2}, {"head_dim", 64}, {"prompt", 10}, {"context", 1}},
                DType::kFp16, "causal");
  EXPECT_EQ(attention_keys(params), 10);
  EXPECT_EQ(attention_cost(params).flops, 4 * 2 * 8 * 55 * 64);
  EXPECT_EQ(attention_cost(params).bytes(), 2 * (2 * 2 * 10 * 8 * 64 + 2 * 2 * 10 * 2 * 64));
  params.variant = "full";
  EXPECT_EQ(attention_cost(params).flops, 4 * 2 * 8 * 100 * 64);
  params.axes.back().second = 30;
  params.variant = "causal";
  EXPECT_EQ(attention_cost(params).flops, 4 * 2 * 8 * (10 * 20 + 55) * 64);
}

}  // namespace
}  // namespace llmprof::ops
