#include "kernels/cpu/attention_kernels.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "kernels/cpu/row_kernels.h"

namespace llmprof::kernels::cpu {
namespace {

constexpr int64_t kKeysAtOnce = 64;
constexpr int64_t kLanesOfHead = 16;
// Rows of a block: their queries and sums, 1 KB each for heads of 128, stay in the second cache beside 64 keys.
constexpr int64_t kBlockRows = 256, kBlockRowsLeast = 48;
// From so many rows on, packing keys for them is worth it.
constexpr int64_t kManyRows = 32;
// Fewer keys are not worth a part of their own.
constexpr int64_t kSplitKeys = 256;
// Less work (multiply-adds) than waking a thread is worth is done by the calling one.
constexpr int64_t kWorkOfOne = 1 << 16;

int64_t padded_head(int64_t head) { return (head + kLanesOfHead - 1) / kLanesOfHead * kLanesOfHead; }

int64_t keys_seen(const AttentionArrays& of, int64_t sequence, int64_t query) {
  if (of.positions != nullptr) return of.positions[sequence * of.queries + query] + int64_t{1};
  return of.causal ? of.keys - of.queries + query + 1 : of.keys;
}

// Of one split: weighted values of each row, then largest scores, then sums.
int64_t attention_part_floats(const AttentionArrays& of) {
  return of.heads / of.kv_heads * of.queries * (padded_head(of.head_dim) + 2);
}

#define LLMPROF_BODIES "kernels/cpu/attention_bodies.h"
#include "kernels/cpu/vector_targets.h"

}  // namespace

std::vector<AttentionKernels> attention_kernels(const device::cpu::Instructions& instructions, DType dtype) {
  const bool half = dtype == DType::kBf16;
  std::vector<AttentionKernels> all;
#if defined(__x86_64__)
  if (instructions.avx512)
    all.push_back((half ? avx512::attention_kernels_of<avx512::Bf16>
                        : avx512::attention_kernels_of<avx512::Fp32>)("own AVX-512"));
  if (instructions.avx2)
    all.push_back((half ? avx2::attention_kernels_of<avx2::Bf16> : avx2::attention_kernels_of<avx2::Fp32>)("own AVX2"));
#else
  static_cast<void>(instructions);
#endif
  if (all.empty())
    all.push_back(
        (half ? plain::attention_kernels_of<plain::Bf16> : plain::attention_kernels_of<plain::Fp32>)("own plain"));
  return all;
}

void AttentionRunner::run(const AttentionArrays& of) {
  const int64_t group = of.heads / of.kv_heads, heads = of.sequences * of.kv_heads, threads = team_.threads();
  const int64_t padded = padded_head(of.head_dim), rows = group * of.queries;
  const bool many = rows >= kManyRows;
  AttentionPlan plan;
  int64_t units = heads, floats = 0;
  if (many) {
    plan.block_queries = std::clamp<int64_t>(kBlockRows / group, 1, of.queries);
    const auto blocks = [&] { return (of.queries + plan.block_queries - 1) / plan.block_queries; };
    // Several blocks for each thread even out the end.
    while (heads * blocks() < 4 * threads && plan.block_queries * group > kBlockRowsLeast && plan.block_queries > 1)
      plan.block_queries = (plan.block_queries + 1) / 2;
    units = heads * blocks();
    const int64_t most_rows = plan.block_queries * group;
    // Queries and values, keys and values of a block, scores of a chunk, largest scores and sums.
    floats = 2 * most_rows * padded + 2 * kKeysAtOnce * padded + 32 * kKeysAtOnce + 2 * most_rows;
  } else {
    plan.splits = std::clamp<int64_t>((2 * threads + heads - 1) / heads, 1, std::max<int64_t>(of.keys / kSplitKeys, 1));
    // Without fewer heads than threads there is nothing to even out.
    if (heads >= threads) plan.splits = 1;
    units = heads * plan.splits;
    floats = rows * (2 * padded + kKeysAtOnce + 2);
    if (plan.splits > 1) {
      parts_.resize(std::max(parts_.size(), static_cast<size_t>(units * attention_part_floats(of))));
      plan.parts = parts_.data();
    }
  }
  floats = (floats + 31) / 16 * 16;  // no two threads on one line
  scratch_.resize(std::max(scratch_.size(), static_cast<size_t>(floats * threads)));
  const auto kernel = many ? kernels_.many : kernels_.few;
  std::atomic<int64_t> next = 0;
  const auto work = [&](int thread) {
    for (int64_t unit = next++; unit < units; unit = next++)
      kernel(of, plan, unit, scratch_.data() + static_cast<int64_t>(thread) * floats);
  };
  const bool alone = threads == 1 || heads * rows * of.keys * of.head_dim < kWorkOfOne;
  if (alone)
    work(0);
  else
    team_.run(work);
  if (plan.splits <= 1) return;
  next = 0;
  const auto join = [&](int) {
    for (int64_t unit = next++; unit < heads; unit = next++) kernels_.join(of, plan, unit);
  };
  if (alone)
    join(0);
  else
    team_.run(join);
}

}  // namespace llmprof::kernels::cpu
