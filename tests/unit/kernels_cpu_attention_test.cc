// Attention on the CPU, of every width that this one has: right for prompts and for single queries, in one piece and in
// pages, and a wrong one is seen.
#include <cmath>
#include <cstring>

#include "device/fill.h"
#include "kernels/cpu/attention_kernels.h"
#include "kernels/cpu/ops.h"
#include "kernels/reference/attention.h"
#include "kernels_cpu_support.h"
#include "ops_params.h"

namespace llmprof::kernels {
namespace {

OpParams prompt(int64_t batch, int64_t heads, int64_t kv_heads, int64_t head, int64_t queries, int64_t keys,
                DType dtype, std::string variant) {
  return ops::params_of({{"batch", batch},
                         {"heads", heads},
                         {"kv_heads", kv_heads},
                         {"head_dim", head},
                         {"prompt", queries},
                         {"context", keys}},
                        dtype, std::move(variant));
}
OpParams decode(int64_t batch, int64_t heads, int64_t kv_heads, int64_t head, int64_t keys, DType dtype,
                std::string variant) {
  return ops::params_of(
      {{"batch", batch}, {"heads", heads}, {"kv_heads", kv_heads}, {"head_dim", head}, {"context", keys}}, dtype,
      std::move(variant));
}

class CpuAttention : public testing::TestWithParam<DType> {
 protected:
  std::unique_ptr<Device> device_ = std::move(*device::cpu::open_cpu(0));
};
INSTANTIATE_TEST_SUITE_P(Types, CpuAttention, testing::Values(DType::kFp32, DType::kBf16),
                         [](const auto& of) { return std::string(dtype_name(of.param)); });

TEST_P(CpuAttention, Prompts) {
  for (const std::string variant : {"causal", "full"}) {
    const auto right = [&](int64_t batch, int64_t heads, int64_t kv_heads, int64_t head, int64_t queries,
                           int64_t keys) {
      expect_all_right(*device_, cpu::prepare_attention,
                       prompt(batch, heads, kv_heads, head, queries, keys, GetParam(), variant));
    };
    right(1, 1, 1, 5, 3, 1);        // smaller than any vector or block
    right(2, 4, 2, 64, 67, 1);      // blocks that end inside
    right(1, 6, 2, 80, 130, 200);   // a head of no power of two; keys before the prompt
    right(1, 2, 2, 128, 300, 300);  // several blocks
    right(1, 3, 1, 256, 40, 1);
  }
}

TEST_P(CpuAttention, Decode) {
  for (const std::string variant : {"contiguous", "paged"}) {
    const auto right = [&](int64_t batch, int64_t heads, int64_t kv_heads, int64_t head, int64_t keys) {
      expect_all_right(*device_, cpu::prepare_attention_decode,
                       decode(batch, heads, kv_heads, head, keys, GetParam(), variant));
    };
    right(1, 1, 1, 7, 1);
    right(3, 8, 2, 64, 77);
    right(2, 7, 1, 128, 500);  // a group of 7
    right(1, 1, 1, 96, 2000);  // keys in parts
    right(1, 64, 1, 64, 130);  // so many heads that keys are packed
  }
}

TEST(CpuAttentionRefused, HeadsThatAreNoMultiple) {
  EXPECT_NE(
      cpu::attention_unsupported(decode(1, 6, 4, 64, 10, DType::kFp32, "paged")).value_or("").find("6 is none of 4"),
      std::string::npos);
  EXPECT_TRUE(cpu::attention_unsupported(decode(1, 8, 4, 64, 10, DType::kFp16, "paged")));
}

std::vector<cpu::AttentionKernels> attention_kernels_of_every_width(DType dtype) {
  std::vector<cpu::AttentionKernels> all = cpu::attention_kernels(device::cpu::cpu_instructions(), dtype);
  all.push_back(cpu::attention_kernels({}, dtype)[0]);  // of a CPU that has none of them
  return all;
}

struct Small {
  static constexpr int64_t kHeads = 4, kKvHeads = 2, kHead = 24, kKeys = 1100;
  explicit Small(int64_t count) : queries(count) {
    const auto random = [](std::vector<float>& to, int64_t size, uint64_t seed) {
      to.resize(static_cast<size_t>(size));
      for (size_t i = 0; i < to.size(); ++i) to[i] = device::fill_uniform(device::fill_hash(seed, i));
    };
    random(q, queries * kHeads * kHead, 1);
    random(k, kKeys * kKvHeads * kHead, 2);
    random(v, kKeys * kKvHeads * kHead, 3);
    out.assign(q.size(), std::nanf(""));
  }
  // Tokens of all heads one behind the other, as a projection leaves them.
  cpu::AttentionArrays arrays() {
    cpu::AttentionArrays of;
    of.q = {q.data(), queries * kHeads * kHead, kHead, kHeads * kHead};
    of.out = {out.data(), queries * kHeads * kHead, kHead, kHeads * kHead};
    of.k = {k.data(), kKeys * kKvHeads * kHead, kHead, kKvHeads * kHead};
    of.v = of.k;
    of.v.data = v.data();
    of.sequences = 1;
    of.heads = kHeads;
    of.kv_heads = kKvHeads;
    of.head_dim = kHead;
    of.queries = queries;
    of.keys = kKeys;
    of.scale = 0.5F;
    return of;
  }
  double error(const std::vector<int32_t>& seen) const {
    double worst = 0;
    for (int64_t query = 0; query < queries; ++query)
      for (int64_t head = 0; head < kHeads; ++head) {
        const auto at = static_cast<size_t>((query * kHeads + head) * kHead);
        const std::vector<double> row(q.begin() + static_cast<int64_t>(at),
                                      q.begin() + static_cast<int64_t>(at) + kHead);
        std::vector<float> keys, values;
        for (int64_t key = 0; key < kKeys; ++key) {
          const int64_t from = (key * kKvHeads + head / 2) * kHead;
          keys.insert(keys.end(), k.begin() + from, k.begin() + from + kHead);
          values.insert(values.end(), v.begin() + from, v.begin() + from + kHead);
        }
        const AttentionRow expected = attention_row(row, keys, values, seen[static_cast<size_t>(query)] + 1, 0.5);
        for (size_t i = 0; i < kHead; ++i) {
          const double off = std::fabs(static_cast<double>(out[at + i]) - expected.out[i]);
          worst = std::isnan(off) ? INFINITY : std::max(worst, off);
        }
      }
    return worst;
  }
  int64_t queries;
  std::vector<float> q, k, v, out;
};

TEST(CpuAttentionKernels, StridesAndPositions) {
  for (const int64_t queries : {2, 20}) {
    for (const cpu::AttentionKernels& kernels : attention_kernels_of_every_width(DType::kFp32)) {
      for (const int threads : {1, 7}) {
        Small small(queries);
        std::vector<int32_t> seen;
        for (int64_t i = 0; i < queries; ++i) seen.push_back(static_cast<int32_t>(i * 53 % Small::kKeys));
        cpu::AttentionArrays of = small.arrays();
        of.positions = seen.data();
        const device::cpu::Team team(threads);
        cpu::AttentionRunner(team, kernels).run(of);
        EXPECT_LT(small.error(seen), 2e-6) << kernels.name << " " << queries << " queries, " << threads << " threads";
        // One key too few is seen.
        of.positions = nullptr;
        of.keys = Small::kKeys - 1;
        cpu::AttentionRunner(team, kernels).run(of);
        EXPECT_GT(small.error(std::vector<int32_t>(static_cast<size_t>(queries), Small::kKeys - 1)), 1e-5);
      }
    }
  }
}

// Scores of hundreds: only differences are exponentiated.
TEST(CpuAttentionKernels, LargeScores) {
  for (const int64_t queries : {1, 20}) {
    for (const cpu::AttentionKernels& kernels : attention_kernels_of_every_width(DType::kFp32)) {
      Small small(queries);
      for (float& value : small.q) value *= 400;
      const device::cpu::Team team(1);
      cpu::AttentionRunner(team, kernels).run(small.arrays());
      EXPECT_LT(small.error(std::vector<int32_t>(static_cast<size_t>(queries), Small::kKeys - 1)), 2e-3);
    }
  }
}

// A mask that lets each query see one key more than it may.
TEST(WrongAttention, OneKeyTooMany) {
  const std::unique_ptr<Device> device = std::move(*device::cpu::open_cpu(1));
  AttentionShape shape;
  shape.queries = shape.keys = 40;
  shape.dtype = DType::kFp32;
  shape.causal = true;
  const size_t bytes = static_cast<size_t>(shape.queries * shape.head_dim) * 4;
  std::vector<std::unique_ptr<Buffer>> buffers;
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    buffers.push_back(std::move(*device->allocate(bytes)));
    ASSERT_TRUE(device->fill(*buffers.back(), {Fill::Kind::kUniform, DType::kFp32, seed, 0}));
  }
  const auto heads = [&](size_t i) { return dense_heads(*device, *buffers[i], shape); };
  const Result<AttentionExpected> expected = expect_attention(*device, shape, *buffers[0], heads(1), heads(2), 1);
  ASSERT_TRUE(expected);
  for (const int32_t more : {0, 1}) {
    std::vector<int32_t> seen;
    for (int32_t i = 0; i < shape.queries; ++i) seen.push_back(std::min<int32_t>(i + more, 39));
    cpu::AttentionArrays of;
    const auto at = [&](size_t i) {
      return cpu::HeadsAt{buffers[i]->address(), 0, shape.queries * shape.head_dim, shape.head_dim};
    };
    of.q = at(0);
    of.k = at(1);
    of.v = at(2);
    of.out = at(3);
    of.sequences = of.heads = of.kv_heads = 1;
    of.head_dim = shape.head_dim;
    of.queries = of.keys = shape.queries;
    of.positions = seen.data();
    of.scale = static_cast<float>(shape.scale());
    const device::cpu::Team team(1);
    cpu::AttentionRunner(team, attention_kernels_of_every_width(DType::kFp32)[0]).run(of);
    const Result<Check> check = check_attention(*device, shape, *buffers[3], *expected);
    EXPECT_EQ(check->status, more == 0 ? CheckStatus::kPassed : CheckStatus::kFailed) << check->note;
  }
}

TEST(PageTable, EveryPageOnce) {
  for (const int64_t pages : {1, 2, 9, 64}) {
    std::vector<int32_t> table = page_table(pages, 3);
    std::sort(table.begin(), table.end());
    for (int64_t i = 0; i < pages; ++i) EXPECT_EQ(table[static_cast<size_t>(i)], i);
  }
}

}  // namespace
}  // namespace llmprof::kernels
