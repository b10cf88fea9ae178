// The next token of each row of logits: a block takes a row. Values are compared as unsigned integers in their order
// ("keys"), so the k largest are found exactly, by counting digits from the highest down, whatever the values are.
//
// Macro: T (Bf16, Fp16, Fp32).

constexpr int kKeyBits = 8 * (int)sizeof(typename T::Stored);
constexpr int kDigitBits = 11, kBins = 1 << kDigitBits, kCopies = 4, kMostKept = 1024;

// Larger values have larger keys.
__device__ __forceinline__ u32 key_of(typename T::Stored value) {
  u32 bits;
  if constexpr (kKeyBits == 32)
    bits = bits_of(value);
  else
    bits = (u32)value;
  const u32 sign = 1u << (kKeyBits - 1);
  return (bits & sign) ? (kKeyBits == 32 ? ~bits : ~bits & 0xffffu) : bits | sign;
}
__device__ __forceinline__ float value_of_key(u32 key) {
  const u32 sign = 1u << (kKeyBits - 1);
  const u32 bits = (key & sign) ? key & ~sign : (kKeyBits == 32 ? ~key : ~key & 0xffffu);
  if constexpr (kKeyBits == 32)
    return float_of(bits);
  else
    return T::get((u16)bits);
}

// Calls each(key, index) for every element of a row of packs.
template <class Each>
__device__ __forceinline__ void for_each_key(const Words* row, u32 packs, Each each) {
  for (u32 base = threadIdx.x; base < packs; base += 4 * blockDim.x) {
    Words words[4];
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (base + i * blockDim.x < packs) words[i] = load_words(row + base + i * blockDim.x);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (base + i * blockDim.x >= packs) continue;
      typename Pack<T>::Bits bits;
      bits.words = words[i];
#pragma unroll
      for (int e = 0; e < Pack<T>::kCount; ++e)
        each(key_of(bits.elements[e]), (base + i * blockDim.x) * Pack<T>::kCount + e);
    }
  }
}

// The largest value's index, the lowest of several.
KERNEL void sample_greedy(const Words* logits, u32* tokens, u32 packs) {
  __shared__ u32 keys[32], indices[32];
  u32 key = 0, index = 0xffffffffu;
  const Words* row = logits + (u64)blockIdx.x * packs;
  for_each_key(row, packs, [&](u32 k, u32 i) {
    if (k > key || (k == key && i < index)) {
      key = k;
      index = i;
    }
  });
  for (int round = 0; round < 2; ++round) {
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2) {
      const u32 k = shuffle_xor(key, lanes), i = shuffle_xor(index, lanes);
      if (k > key || (k == key && i < index)) {
        key = k;
        index = i;
      }
    }
    if (round == 1) break;
    if (threadIdx.x % 32 == 0) {
      keys[threadIdx.x / 32] = key;
      indices[threadIdx.x / 32] = index;
    }
    __syncthreads();
    const u32 lane = threadIdx.x % 32;
    key = lane < blockDim.x / 32 ? keys[lane] : 0;
    index = lane < blockDim.x / 32 ? indices[lane] : 0xffffffffu;
  }
  if (threadIdx.x == 0) tokens[blockIdx.x] = index;
}

// Of the k largest (ties: any), those whose probability, from the most likely on, adds up to top_p are kept; one of
// them is drawn by `draws`, a number of [-1, 1) per row. `factor`: 1 / (temperature ln 2). Blocks of 1024.
KERNEL void sample_top(const Words* logits, const float* draws, u32* tokens, float* probabilities, u32 packs, u32 k,
                       float factor, float top_p) {
  __shared__ u32 bins[kCopies * kBins];  // later: keys and indices of what is kept, and two rows of sums
  __shared__ float parts[32];
  __shared__ u32 found_digit, found_wanted, above, ties;
  const Words* row = logits + (u64)blockIdx.x * packs;
  const u32 thread = threadIdx.x, lane = thread % 32, warp = thread / 32;

  // The k-th largest key, digit by digit; `wanted`: which of the keys with these digits it is, counted from the
  // largest.
  u32 prefix = 0, known = 0, wanted = k;
  for (int low = kKeyBits; low > 0;) {
    const int width = low < kDigitBits ? low : kDigitBits;
    low -= width;
    const u32 mask = (1u << width) - 1;
    for (u32 i = thread; i < kCopies * kBins; i += blockDim.x) bins[i] = 0;
    __syncthreads();
    u32* const mine = bins + (thread % kCopies) * kBins;
    for_each_key(row, packs, [&](u32 key, u32) {
      if ((key & known) == prefix) atomicAdd(mine + ((key >> low) & mask), 1u);
    });
    __syncthreads();
    // Thread t looks at two digits, the largest first.
    u32 counts[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const u32 digit = kBins - 1 - 2 * thread - i;
      counts[i] = 0;
#pragma unroll
      for (int copy = 0; copy < kCopies; ++copy) counts[i] += bins[copy * kBins + digit];
    }
    __syncthreads();
    bins[thread] = counts[0] + counts[1];
    const float part = warp_reduce<Sum>((float)(counts[0] + counts[1]));  // exact: rows have less than 2^24 elements
    if (lane == 0) parts[warp] = part;
    __syncthreads();
    u32 before = 0;
    for (u32 i = 0; i < warp; ++i) before += (u32)parts[i];
    if (before < wanted && wanted <= before + (u32)parts[warp]) {
      for (u32 i = warp * 32; i < thread; ++i) before += bins[i];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if (before < wanted && wanted <= before + counts[i]) {
          found_digit = kBins - 1 - 2 * thread - i;
          found_wanted = wanted - before;
        }
        before += counts[i];
      }
    }
    __syncthreads();
    prefix |= found_digit << low;
    known |= mask << low;
    wanted = found_wanted;
    __syncthreads();
  }

  u32* const keys = bins;
  u32* const indices = bins + kMostKept;
  if (thread == 0) above = ties = 0;
  keys[thread] = 0;
  indices[thread] = 0xffffffffu;
  __syncthreads();
  const u32 larger = k - wanted;
  for_each_key(row, packs, [&](u32 key, u32 index) {
    if (key < prefix) return;
    u32 slot;
    if (key > prefix) {
      slot = atomicAdd(&above, 1u);
    } else {
      slot = atomicAdd(&ties, 1u);
      if (slot >= wanted) return;
      slot += larger;
    }
    keys[slot] = key;
    indices[slot] = index;
  });
  __syncthreads();

  // Sorted: the largest key first, the lowest index first among equals. As many places as k, rounded up to a power of
  // two; those behind k hold the least key.
  u32 places = 1;
  while (places < k) places *= 2;
  for (u32 size = 2; size <= places; size *= 2) {
    for (u32 step = size / 2; step > 0; step /= 2) {
      const u32 other = thread ^ step;
      if (other > thread && thread < places) {
        const bool first =
            keys[thread] > keys[other] || (keys[thread] == keys[other] && indices[thread] < indices[other]);
        if (first == ((thread & size) != 0)) {
          const u32 key = keys[thread], index = indices[thread];
          keys[thread] = keys[other];
          indices[thread] = indices[other];
          keys[other] = key;
          indices[other] = index;
        }
      }
      __syncthreads();
    }
  }

  // sums[i]: of the first i + 1.
  float* sums = (float*)(bins + 2 * kMostKept);
  float* next = sums + kMostKept;
  const float most = value_of_key(keys[0]);
  const float mine = thread < k ? exp2_fast((value_of_key(keys[thread]) - most) * factor) : 0;
  sums[thread] = mine;
  __syncthreads();
  for (u32 step = 1; step < places; step *= 2) {
    if (thread < places) next[thread] = sums[thread] + (thread >= step ? sums[thread - step] : 0);
    __syncthreads();
    float* const done = next;
    next = sums;
    sums = done;
  }
  const float enough = top_p * sums[places - 1];
  const float before = thread > 0 && thread < places ? sums[thread - 1] : 0;
  if (thread < k && before < enough && (sums[thread] >= enough || thread + 1 == k)) parts[0] = sums[thread];
  __syncthreads();
  const float kept = parts[0], draw = (draws[blockIdx.x] * 0.5f + 0.5f) * kept;
  const bool last = sums[thread] >= kept && before < kept;
  if (thread < k && before < kept && before <= draw && (draw < sums[thread] || last)) {
    tokens[blockIdx.x] = indices[thread];
    probabilities[blockIdx.x] = mine / kept;
  }
}
