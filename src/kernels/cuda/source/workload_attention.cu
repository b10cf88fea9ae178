// Attention of the reference workload: any number of queries, keys up to a position that lies in memory, so that a
// graph of a decode step can be replayed at every position. For decoding it reads keys and values once per query head
// and splits long contexts over blocks; for prompts it is the slow way that needs no library.
//
// A block takes one query head and a stretch of its keys. A key is read by as many lanes as it has packs of 16 bytes;
// each such group of lanes walks over its own keys with running sums, and groups, warps and blocks are summed at the
// end, always in the same order.
//
// Macros: T (Bf16, Fp32), HEAD (16, 32, 64, 128).

constexpr float kNothingSeen = -1.0e30f;

// Largest score and sum of exponentials; `keep` and `take` are what either side's sums are to be multiplied by.
struct Joined {
  float most, keep, take;
};
__device__ __forceinline__ Joined join(float most, float other) {
  const float both = Max::of(most, other);
  return {both, exp2_fast(most - both), exp2_fast(other - both)};
}

// Strides in elements: of a sequence, a token, a head; those of values are those of keys. Query r of all sequences sees
// keys 0 to positions[r], or all `keys` without positions. Rows of `out` are dense. `scale` includes log2(e). `parts`
// holds (HEAD + 2) numbers for each block, `counters` a zero for each query head, and they are zero again afterwards;
// neither is used with one split.
template <class Type, int kHead>
__device__ __forceinline__ void attend_as(const typename Type::Stored* q, const typename Type::Stored* k,
                                          const typename Type::Stored* v, const int* positions,
                                          typename Type::Stored* out, u64 q_sequence, u64 q_token, u64 q_head,
                                          u64 k_sequence, u64 k_token, u64 k_head, u32 queries, u32 keys, u32 heads,
                                          u32 group, u32 splits, float scale, float* parts, u32* counters) {
  constexpr int kCount = Pack<Type>::kCount, kLanes = kHead / kCount, kAtOnce = 4;
  static_assert(kLanes <= 32 && kLanes * kCount == kHead, "a warp holds a key");
  __shared__ float sums_of_warps[8 * kHead], mosts_of_warps[8], weights_of_warps[8];
  __shared__ u32 arrived;
  const u32 unit = blockIdx.x / splits, split = blockIdx.x % splits;
  const u32 head = unit % heads, row = unit / heads, query = row % queries, sequence = row / queries;
  const u32 seen = positions != nullptr ? (u32)positions[row] + 1 : keys;
  const u32 stretch = (seen + splits - 1) / splits, from = split * stretch;
  const u32 to = from + stretch < seen ? from + stretch : seen;
  const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  const u32 slot = threadIdx.x / kLanes, slots = blockDim.x / kLanes, piece = threadIdx.x % kLanes * kCount;
  const u64 key_at = sequence * k_sequence + head / group * k_head + piece;

  Pack<Type> of_query;
  of_query.unpack(load_words(q + sequence * q_sequence + query * q_token + head * q_head + piece));
#pragma unroll
  for (int e = 0; e < kCount; ++e) of_query.v[e] *= scale;
  float most = kNothingSeen, weight = 0, sums[kCount];
#pragma unroll
  for (int e = 0; e < kCount; ++e) sums[e] = 0;
  for (u32 base = from; base < to; base += kAtOnce * slots) {
    Words key_words[kAtOnce], value_words[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const u32 wanted = base + i * slots + slot, key = wanted < to ? wanted : to - 1;
      key_words[i] = load_words(k + key_at + key * k_token);
      value_words[i] = load_words(v + key_at + key * k_token);
    }
    float scores[kAtOnce], highest = most;
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      Pack<Type> key;
      key.unpack(key_words[i]);
      float dot = 0;
#pragma unroll
      for (int e = 0; e < kCount; ++e) dot += of_query.v[e] * key.v[e];
#pragma unroll
      for (int lanes = kLanes / 2; lanes > 0; lanes /= 2) dot += shuffle_xor(dot, lanes);
      scores[i] = dot;
      if (base + i * slots + slot < to) highest = Max::of(highest, dot);
    }
    const float keep = exp2_fast(most - highest);
    most = highest;
    weight *= keep;
#pragma unroll
    for (int e = 0; e < kCount; ++e) sums[e] *= keep;
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const float mine = base + i * slots + slot < to ? exp2_fast(scores[i] - most) : 0.0f;
      Pack<Type> value;
      value.unpack(value_words[i]);
      weight += mine;
#pragma unroll
      for (int e = 0; e < kCount; ++e) sums[e] += mine * value.v[e];
    }
  }
  // Groups of a warp.
#pragma unroll
  for (int lanes = kLanes; lanes < 32; lanes *= 2) {
    const Joined joined = join(most, shuffle_xor(most, lanes));
    weight = weight * joined.keep + shuffle_xor(weight, lanes) * joined.take;
#pragma unroll
    for (int e = 0; e < kCount; ++e) sums[e] = sums[e] * joined.keep + shuffle_xor(sums[e], lanes) * joined.take;
    most = joined.most;
  }
  if (lane < kLanes) {
#pragma unroll
    for (int e = 0; e < kCount; ++e) sums_of_warps[warp * kHead + piece + e] = sums[e];
    if (lane == 0) {
      mosts_of_warps[warp] = most;
      weights_of_warps[warp] = weight;
    }
  }
  __syncthreads();
  for (u32 e = threadIdx.x; e < kHead; e += blockDim.x) {
    float all_most = kNothingSeen, all_weight = 0, sum = 0;
    for (u32 w = 0; w < warps; ++w) all_most = Max::of(all_most, mosts_of_warps[w]);
    for (u32 w = 0; w < warps; ++w) {
      const float factor = exp2_fast(mosts_of_warps[w] - all_most);
      all_weight += factor * weights_of_warps[w];
      sum += factor * sums_of_warps[w * kHead + e];
    }
    if (splits == 1) {
      out[(u64)unit * kHead + e] = Type::put(sum * reciprocal(all_weight));
    } else {
      float* const part = parts + (u64)blockIdx.x * (kHead + 2);
      part[e] = sum;
      if (e == 0) {
        part[kHead] = all_most;
        part[kHead + 1] = all_weight;
      }
    }
  }
  if (splits == 1) return;
  // The last block of a query head sums them all.
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) arrived = atomicAdd(counters + unit, 1u);
  __syncthreads();
  if (arrived != splits - 1) return;
  __threadfence();
  if (threadIdx.x == 0) counters[unit] = 0;
  const float* const all = parts + (u64)unit * splits * (kHead + 2);
  for (u32 e = threadIdx.x; e < kHead; e += blockDim.x) {
    float all_most = kNothingSeen, all_weight = 0, sum = 0;
    for (u32 s = 0; s < splits; ++s) all_most = Max::of(all_most, load_fresh_number(all + s * (kHead + 2) + kHead));
    for (u32 s = 0; s < splits; ++s) {
      const float* const part = all + s * (kHead + 2);
      const float factor = exp2_fast(load_fresh_number(part + kHead) - all_most);
      all_weight += factor * load_fresh_number(part + kHead + 1);
      sum += factor * load_fresh_number(part + e);
    }
    out[(u64)unit * kHead + e] = Type::put(sum * reciprocal(all_weight));
  }
}

#ifdef HEAD
KERNEL void __launch_bounds__(256)
    attention(const T::Stored* q, const T::Stored* k, const T::Stored* v, const int* positions, T::Stored* out,
              u64 q_sequence, u64 q_token, u64 q_head, u64 k_sequence, u64 k_token, u64 k_head, u32 queries, u32 keys,
              u32 heads, u32 group, u32 splits, float scale, float* parts, u32* counters) {
  attend_as<T, HEAD>(q, k, v, positions, out, q_sequence, q_token, q_head, k_sequence, k_token, k_head, queries, keys,
                     heads, group, splits, scale, parts, counters);
}
#endif
