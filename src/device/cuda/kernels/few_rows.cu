// A product with few rows of activations: out[m][n] = a[m][k] w[n][k]^T, m up to 8 kGroups. What it costs is reading w
// once, so everything else makes way for that: every lane asks for kAhead steps of 16 bytes of its rows before it needs
// the first, and never waits for another warp until its share of k is read.
//
// Weights are the 16 x 16 tile of the matrix units' instruction and activations its 16 x 8 tile. The order of k within
// both is free as long as it is the same, so that a lane's 16 bytes of a row, as they lie in memory, are two tiles'
// words: nothing goes through shared memory.
//
// Macros: T (Bf16, Fp16), GROUPS (of 8 rows of activations), TILES (of 16 rows of w a warp has), AHEAD.

// Of one step: 32 elements of k, four lanes of 16 bytes to a row.
template <int kGroups, int kTiles>
struct FewRowsStep {
  Words w[kTiles][2], a[kGroups];
};

// Blocks: `splits` parts of k, `split_steps` steps each, for every 16 kTiles (warps / k_warps) rows of w; the warps of
// one such set of rows take steps in turn. parts: [row block][split][rows][8 kGroups] of fp32; counters: one for each
// row block, zero, and zero again afterwards. n is any, k a multiple of 32.
template <class Type, int kGroups, int kTiles, int kAhead>
__device__ __forceinline__ void few_rows_as(const u16* a, const u16* w, u16* out, u32 m, u32 n, u32 k, u32 k_warps,
                                            u32 splits, u32 split_steps, float* parts, u32* counters) {
  constexpr u32 kWarpsMax = 8, kTokens = 8 * kGroups, kRows = 16 * kTiles;
  __shared__ float sums[kWarpsMax * kRows * kTokens];
  __shared__ u32 arrived;
  const u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32, row_warps = blockDim.x / 32 / k_warps;
  const u32 row_block = blockIdx.x / splits, split = blockIdx.x % splits, block_rows = row_warps * kRows;
  const u32 first_row = row_block * block_rows + warp / k_warps * kRows;
  const u32 steps = k / 32, split_end = (split + 1) * split_steps;
  const u32 end = split_end < steps ? split_end : steps;
  const u32 column = lane % 4 * 8, stride = k_warps;

  // Rows beyond the last one are the last one again; they are not written.
  const u16* rows[kTiles][2];
#pragma unroll
  for (int t = 0; t < kTiles; ++t) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const u32 row = first_row + (u32)t * 16 + (u32)half * 8 + lane / 4;
      rows[t][half] = w + (u64)(row < n ? row : n - 1) * k + column;
    }
  }
  // The same of activations: a row of them is a column of the tile, and touches no other.
  const u16* tokens[kGroups];
#pragma unroll
  for (int g = 0; g < kGroups; ++g) {
    const u32 token = (u32)g * 8 + lane / 4;
    tokens[g] = a + (u64)(token < m ? token : m - 1) * k + column;
  }
  const auto load = [&](FewRowsStep<kGroups, kTiles>& step, u32 at) {
    const u32 offset = at * 32;
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
#pragma unroll
      for (int half = 0; half < 2; ++half) step.w[t][half] = load_past_l1(rows[t][half] + offset);
    }
#pragma unroll
    for (int g = 0; g < kGroups; ++g) step.a[g] = load_gain(tokens[g] + offset);
  };

  float c[kTiles][kGroups][4] = {};
  FewRowsStep<kGroups, kTiles> ahead[kAhead];
  const u32 begin = split * split_steps + warp % k_warps;
#pragma unroll
  for (int i = 0; i < kAhead; ++i) {
    if (begin + (u32)i * stride < end) load(ahead[i], begin + (u32)i * stride);
  }
  for (u32 first = begin; first < end; first += kAhead * stride) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const u32 at = first + (u32)i * stride;
      if (at < end) {
        const FewRowsStep<kGroups, kTiles>& step = ahead[i];
#pragma unroll
        for (int t = 0; t < kTiles; ++t) {
          const Words upper = step.w[t][0], lower = step.w[t][1];
#pragma unroll
          for (int g = 0; g < kGroups; ++g) {
            Type::mma(c[t][g], upper.w[0], lower.w[0], upper.w[1], lower.w[1], step.a[g].w[0], step.a[g].w[1]);
            Type::mma(c[t][g], upper.w[2], lower.w[2], upper.w[3], lower.w[3], step.a[g].w[2], step.a[g].w[3]);
          }
        }
      }
      const u32 next = at + kAhead * stride;
      if (next < end) load(ahead[i], next);
    }
  }

#pragma unroll
  for (int t = 0; t < kTiles; ++t) {
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const u32 row = (u32)t * 16 + lane / 4 + (u32)(e / 2) * 8, token = (u32)g * 8 + lane % 4 * 2 + (u32)(e % 2);
        sums[(warp * kTokens + token) * kRows + row] = c[t][g][e];
      }
    }
  }
  __syncthreads();
  // Neighbouring threads have neighbouring outputs.
  const u32 block_first = row_block * block_rows, part = kTokens * block_rows;
  float* const of_block = parts + (u64)row_block * splits * part;
  for (u32 item = threadIdx.x; item < m * block_rows; item += blockDim.x) {
    const u32 token = item / block_rows, row = item % block_rows;
    float sum = 0;
    for (u32 i = 0; i < k_warps; ++i)
      sum += sums[((row / kRows * k_warps + i) * kTokens + token) * kRows + row % kRows];
    if (splits > 1)
      of_block[split * part + item] = sum;
    else if (block_first + row < n)
      out[(u64)token * n + block_first + row] = Type::put(sum);
  }
  if (splits == 1) return;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) arrived = atomicAdd(counters + row_block, 1u);
  __syncthreads();
  if (arrived != splits - 1) return;
  __threadfence();
  if (threadIdx.x == 0) counters[row_block] = 0;
  // Always in the same order, whoever is the last.
  for (u32 item = threadIdx.x; item < m * block_rows; item += blockDim.x) {
    const u32 token = item / block_rows, row = item % block_rows;
    float sum = 0;
    for (u32 i = 0; i < splits; ++i) sum += load_fresh_number(of_block + i * part + item);
    if (block_first + row < n) out[(u64)token * n + block_first + row] = Type::put(sum);
  }
}

#ifdef GROUPS
KERNEL void __launch_bounds__(256) few_rows(const u16* a, const u16* w, u16* out, u32 m, u32 n, u32 k, u32 k_warps,
                                            u32 splits, u32 split_steps, float* parts, u32* counters) {
  few_rows_as<T, GROUPS, TILES, AHEAD>(a, w, out, m, n, k, k_warps, splits, split_steps, parts, counters);
}
#endif
