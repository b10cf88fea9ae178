// A product with few rows of activations: out[m][n] = a[m][k] w[n][k]^T, m up to 8 kGroups. What it costs is reading w
// once, so everything else makes way for that: every lane asks for kAhead steps of 16 bytes of its rows before it needs
// the first, and never waits for another warp until its share of k is read.
//
// Weights are the 16 x 16 tile of the matrix units' instruction and activations its 16 x 8 tile. The order of k within
// both is free as long as it is the same, so that a lane's 16 bytes of a row, as they lie in memory, are two tiles'
// words: nothing goes through shared memory.
//
// On an H200 (us; cuBLAS with weights as [n, k] and [k, n] beside it): 11.3 of 4096 x 4096 for one row
// (12.5, 12.3), 12.5 for 16 rows (12.9, 12.5); of large weights it is behind, 32.5 of 4096 x 14336 (31.0, 30.4). Blocks
// of several sets of rows, and k split over blocks, were slower for every one of nine shapes.
//
// Macros: T (Bf16, Fp16), GROUPS (of 8 rows of activations), TILES (of 16 rows of w a block has), AHEAD.

// Of one step: 32 elements of k, four lanes of 16 bytes to a row.
template <int kGroups, int kTiles>
struct FewRowsStep {
  Words w[kTiles][2], a[kGroups];
};

// A block for every 16 kTiles rows of w, of eight warps, which take steps in turn. n is any, k a multiple of 32.
template <class Type, int kGroups, int kTiles, int kAhead>
__device__ __forceinline__ void few_rows_as(const u16* a, const u16* w, u16* out, u32 m, u32 n, u32 k) {
  constexpr u32 kWarps = 8, kTokens = 8 * kGroups, kRows = 16 * kTiles;
  __shared__ float sums[kWarps * kRows * kTokens];
  const u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32, steps = k / 32;
  const u32 first_row = blockIdx.x * kRows, column = lane % 4 * 8;

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
#pragma unroll
  for (int i = 0; i < kAhead; ++i) {
    if (warp + (u32)i * kWarps < steps) load(ahead[i], warp + (u32)i * kWarps);
  }
  for (u32 first = warp; first < steps; first += kAhead * kWarps) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const u32 at = first + (u32)i * kWarps;
      if (at < steps) {
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
      const u32 next = at + kAhead * kWarps;
      if (next < steps) load(ahead[i], next);
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
  for (u32 item = threadIdx.x; item < m * kRows; item += blockDim.x) {
    const u32 token = item / kRows, row = item % kRows;
    float sum = 0;
#pragma unroll
    for (u32 i = 0; i < kWarps; ++i) sum += sums[(i * kTokens + token) * kRows + row];
    if (first_row + row < n) out[(u64)token * n + first_row + row] = Type::put(sum);
  }
}

#ifdef GROUPS
KERNEL void __launch_bounds__(256) few_rows(const u16* a, const u16* w, u16* out, u32 m, u32 n, u32 k) {
  few_rows_as<T, GROUPS, TILES, AHEAD>(a, w, out, m, n, k);
}
#endif
