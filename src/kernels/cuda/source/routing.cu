// Tokens to experts: a warp chooses for a token, then slots (token k + place) are put in the order of their experts.
// Counting is done in shared memory first, so that blocks meet in global memory once an expert.
//
// Macros: T (Bf16, Fp16, Fp32), LANES_EACH (experts of a lane: 1, 2, 4, ... 32).

constexpr u32 kExpertsMax = 1024;

// The `k` largest of a row, the lowest index first of equal ones; lane i ends with the i-th. All lanes of the warp.
template <class Type, int kEach>
__device__ __forceinline__ void choose_experts(const typename Type::Stored* row, u32 experts, u32 k, u32& id,
                                               float& weight) {
  const u32 lane = threadIdx.x % 32;
  float values[kEach];
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const u32 expert = i * 32 + lane;
    values[i] = expert < experts ? Type::get(row[expert]) : 0.0f;
  }
  u32 taken = 0;
  float chosen = Max::kNone;
  for (u32 round = 0; round < k; ++round) {
    float most = Max::kNone;
    u32 at = 0xffffffffu;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const u32 expert = i * 32 + lane;
      const bool free = expert < experts && (taken >> i & 1u) == 0;
      if (free && (at == 0xffffffffu || values[i] > most)) {
        most = values[i];
        at = expert;
      }
    }
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2) {
      const float other = shuffle_xor(most, lanes);
      const u32 there = shuffle_xor(at, lanes);
      if (there != 0xffffffffu && (at == 0xffffffffu || other > most || (other == most && there < at))) {
        most = other;
        at = there;
      }
    }
    if (at % 32 == lane) taken |= 1u << (at / 32);
    if (round == lane) {
      id = at;
      chosen = most;
    }
  }
  const float highest = warp_reduce<Max>(chosen);
  const float part = lane < k ? exp2_fast((chosen - highest) * 1.4426950408889634f) : 0.0f;
  weight = part * reciprocal(warp_reduce<Sum>(part));
}

// Exclusive sums of experts' counts, by a block of 1,024; `sums` is shared. Every thread gets that of its expert.
__device__ __forceinline__ u32 sums_before(u32 count, u32* sums) {
  const u32 thread = threadIdx.x;
  sums[thread] = count;
  __syncthreads();
  for (u32 step = 1; step < kExpertsMax; step *= 2) {
    const u32 before = thread >= step ? sums[thread - step] : 0;
    __syncthreads();
    sums[thread] += before;
    __syncthreads();
  }
  return sums[thread] - count;
}

// Also counts the tokens of each expert; `counts` is zero before.
template <class Type, int kEach>
__device__ __forceinline__ void route_top_as(const typename Type::Stored* logits, u32* ids, float* weights, u32* counts,
                                             u32 tokens, u32 experts, u32 k) {
  __shared__ u32 here[kExpertsMax];
  for (u32 e = threadIdx.x; e < experts; e += blockDim.x) here[e] = 0;
  __syncthreads();
  const u32 token = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (token < tokens) {
    u32 id = 0;
    float weight = 0;
    choose_experts<Type, kEach>(logits + (u64)token * experts, experts, k, id, weight);
    if (lane < k) {
      ids[(u64)token * k + lane] = id;
      weights[(u64)token * k + lane] = weight;
      atomicAdd(here + id, 1u);
    }
  }
  __syncthreads();
  for (u32 e = threadIdx.x; e < experts; e += blockDim.x)
    if (here[e] != 0) atomicAdd(counts + e, here[e]);
}

// Counts become offsets, and zero again for the next time. One block of 1,024.
__device__ __forceinline__ void route_offsets_as(u32* counts, u32* offsets, u32* cursors, u32 experts) {
  __shared__ u32 sums[kExpertsMax];
  const u32 expert = threadIdx.x;
  const u32 count = expert < experts ? counts[expert] : 0;
  const u32 before = sums_before(count, sums);
  if (expert >= experts) return;
  offsets[expert] = cursors[expert] = before;
  counts[expert] = 0;
  if (expert == experts - 1) offsets[experts] = before + count;
}

// Each block takes places for all of its slots of an expert at once.
__device__ __forceinline__ void route_order_as(const u32* ids, u32* cursors, u32* order, u32 slots, u32 experts) {
  __shared__ u32 here[kExpertsMax], first[kExpertsMax];
  for (u32 e = threadIdx.x; e < experts; e += blockDim.x) here[e] = 0;
  __syncthreads();
  const u32 slot = blockIdx.x * blockDim.x + threadIdx.x;
  const u32 id = slot < slots ? ids[slot] : 0;
  const u32 rank = slot < slots ? atomicAdd(here + id, 1u) : 0;
  __syncthreads();
  for (u32 e = threadIdx.x; e < experts; e += blockDim.x)
    if (here[e] != 0) first[e] = atomicAdd(cursors + e, here[e]);
  __syncthreads();
  if (slot < slots) order[first[id] + rank] = slot;
}

// All of it by one block of 1,024: for the few tokens of a decode step.
template <class Type, int kEach>
__device__ __forceinline__ void route_few_as(const typename Type::Stored* logits, u32* ids, float* weights,
                                             u32* offsets, u32* order, u32 tokens, u32 experts, u32 k) {
  __shared__ u32 here[kExpertsMax], sums[kExpertsMax];
  const u32 lane = threadIdx.x % 32;
  here[threadIdx.x] = 0;
  __syncthreads();
  for (u32 token = threadIdx.x / 32; token < tokens; token += 32) {
    u32 id = 0;
    float weight = 0;
    choose_experts<Type, kEach>(logits + (u64)token * experts, experts, k, id, weight);
    if (lane >= k) continue;
    ids[token * k + lane] = id;
    weights[token * k + lane] = weight;
    atomicAdd(here + id, 1u);
  }
  __syncthreads();
  const u32 count = here[threadIdx.x];
  const u32 before = sums_before(count, sums);
  if (threadIdx.x < experts) offsets[threadIdx.x] = before;
  if (threadIdx.x == experts - 1) offsets[experts] = before + count;
  here[threadIdx.x] = before;
  __threadfence();
  __syncthreads();
  for (u32 slot = threadIdx.x; slot < tokens * k; slot += blockDim.x) order[atomicAdd(here + ids[slot], 1u)] = slot;
}

#ifdef LANES_EACH
KERNEL void route_top(const typename T::Stored* logits, u32* ids, float* weights, u32* counts, u32 tokens, u32 experts,
                      u32 k) {
  route_top_as<T, LANES_EACH>(logits, ids, weights, counts, tokens, experts, k);
}
KERNEL void route_offsets(u32* counts, u32* offsets, u32* cursors, u32 experts) {
  route_offsets_as(counts, offsets, cursors, experts);
}
KERNEL void route_order(const u32* ids, u32* cursors, u32* order, u32 slots, u32 experts) {
  route_order_as(ids, cursors, order, slots, experts);
}
KERNEL void __launch_bounds__(1024) route_few(const typename T::Stored* logits, u32* ids, float* weights, u32* offsets,
                                              u32* order, u32 tokens, u32 experts, u32 k) {
  route_few_as<T, LANES_EACH>(logits, ids, weights, offsets, order, tokens, experts, k);
}
#endif
