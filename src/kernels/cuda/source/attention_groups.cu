// Attention of a prompt on 9.0, where the matrix units reach their rate only by products of four warps together
// (wgmma): the same walk over tiles of keys as attention.cu, with 64 queries for each group of four warps.
//
// The scores of the next tile are asked for before the weighted values of this one; while the units work on the latter
// the softmax of the former is computed. Queries, keys and values lie in shared memory in strips of 64 elements, 128
// bytes a row, pieces of 16 bytes turned around by the row as the units expect it (the "128-byte swizzle").
//
// Macros: T (Bf16, Fp16), HEAD (64, 128, 256), KEYS (64, 128).

#ifdef LLMPROF_GROUPS
constexpr float kNoScore = -1.0e30f;

template <class Type, int kHead, int kKeys>
struct GroupTile {
  static constexpr u32 kThreads = 256, kGroups = kThreads / 128, kBlockRows = 64 * kGroups;
  static constexpr u32 kPieces = kHead / 8;
  static constexpr u32 kQueryBytes = kBlockRows * kHead * 2, kTileBytes = kKeys * kHead * 2;

  float o[kHead / 2], s[kKeys / 2];
  u32 weights[kKeys / 16][4];
  float most[2], sum[2];

  // In bytes, of a strip-wise array of so many rows.
  static __device__ __forceinline__ u32 place(u32 rows, u32 row, u32 piece) {
    return piece / 8 * (rows * 128) + row * 128 + (piece % 8 ^ row % 8) * 16;
  }
  // What the units are told of it: rows are `turned` where the sum goes over them (values), else over their elements.
  static __device__ __forceinline__ u64 described(u32 at, u32 rows, bool turned) {
    const u32 next_strip = turned ? rows * 128 : 16;
    return (u64)((at & 0x3ffffu) >> 4) | (u64)(next_strip >> 4) << 16 | (u64)(1024 >> 4) << 32 | 1ull << 62;
  }
  template <u32 kRows>
  static __device__ __forceinline__ void fetch(u32 to, const u16* from, u32 first, u32 size) {
    static_assert(kRows * kPieces % kThreads == 0, "each thread copies as much");
#pragma unroll
    for (u32 i = 0; i < kRows * kPieces / kThreads; ++i) {
      const u32 item = i * kThreads + threadIdx.x, row = item / kPieces, piece = item % kPieces;
      const u32 at = first + row < size ? first + row : size - 1;
      copy_async(to + place(kRows, row, piece), from + (u64)at * kHead + piece * 8);
    }
  }

  // s = queries x keys; done after group_wait.
  __device__ __forceinline__ void ask_scores(u32 queries, u32 keys) {
#pragma unroll
    for (u32 c = 0; c < kHead / 16; ++c)
      Type::group_shared(s, described(queries + c / 4 * (kBlockRows * 128) + c % 4 * 32, kBlockRows, false),
                         described(keys + c / 4 * (kKeys * 128) + c % 4 * 32, kKeys, false), c > 0);
    group_close();
  }
  // o += weights x values.
  __device__ __forceinline__ void ask_values(u32 values) {
#pragma unroll
    for (u32 j = 0; j < kKeys / 16; ++j)
      Type::group_turned(o, weights[j], described(values + j * (16 * 128), kKeys, true));
    group_close();
  }
  // Scores become weights, still in s; factors: what the sums so far are to be multiplied with.
  __device__ __forceinline__ void weigh(float scale, float (&factors)[2]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float here = kNoScore;
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n) here = Max::of(here, Max::of(s[4 * n + 2 * half], s[4 * n + 2 * half + 1]));
      here = Max::of(here, shuffle_xor(here, 1));
      here = Max::of(here, shuffle_xor(here, 2)) * scale;
      here = Max::of(here, most[half]);
      factors[half] = exp2_fast(most[half] - here);
      most[half] = here;
      sum[half] *= factors[half];
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
        for (int e = 4 * n + 2 * half; e < 4 * n + 2 * half + 2; ++e) {
          s[e] = exp2_fast(s[e] * scale - here);
          sum[half] += s[e];
        }
      }
    }
  }
  __device__ __forceinline__ void rescale(const float (&factors)[2]) {
#pragma unroll
    for (int i = 0; i < kHead / 2; ++i) o[i] *= factors[i / 2 % 2];
  }
  __device__ __forceinline__ void pack() {
#pragma unroll
    for (int j = 0; j < kKeys / 16; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) weights[j][i] = Type::put_two(s[8 * j + 2 * i], s[8 * j + 2 * i + 1]);
    }
  }
  // Row `row` of the lane sees the keys before row_end + row.
  __device__ __forceinline__ void hide(u32 first, u32 keys, bool causal, u32 row_end, u32 lane) {
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const u32 row = lane / 4 + (u32)(e / 2) * 8, key = first + (u32)n * 8 + lane % 4 * 2 + (u32)(e % 2);
        if (key >= keys || (causal && key >= row_end + row)) s[4 * n + e] = kNoScore;
      }
    }
  }

  // Parameters and blocks as those of attention.cu; 1024 bytes of shared memory more than the arrays take, to align.
  static __device__ __forceinline__ void run(const u16* q, const u16* k, const u16* v, u16* out, u32 heads, u32 group,
                                             u32 queries, u32 keys, u32 causal, float scale) {
    DYNAMIC_SHARED(pool);
    const u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const u32 head = blockIdx.x % heads, first_row = (gridDim.x / heads - 1 - blockIdx.x / heads) * kBlockRows;
    const u32 warp_row = first_row + warp * 16;
    q += (u64)head * queries * kHead;
    out += (u64)head * queries * kHead;
    k += (u64)(head / group) * keys * kHead;
    v += (u64)(head / group) * keys * kHead;
    const u32 shown = causal != 0 ? keys - queries + 1 : keys;
    const u32 block_end = shown + first_row + kBlockRows - 1;
    const u32 end = causal != 0 && block_end < keys ? block_end : keys;
    const u32 row_end = causal != 0 ? shown + warp_row : keys;

    const u32 start = shared_at(pool), shared = (start + 1023u) / 1024u * 1024u;
    const u32 all_keys = shared + kQueryBytes, all_values = all_keys + 2 * kTileBytes;
    const u32 my_queries = shared + warp / 4 * (64 * 128);
    GroupTile tile;
#pragma unroll
    for (int i = 0; i < kHead / 2; ++i) tile.o[i] = 0;
    tile.most[0] = tile.most[1] = kNoScore;
    tile.sum[0] = tile.sum[1] = 0;

    fetch<kBlockRows>(shared, q, first_row, queries);
    fetch<kKeys>(all_keys, k, 0, keys);
    copies_close();
    fetch<kKeys>(all_values, v, 0, keys);
    if (kKeys < end) fetch<kKeys>(all_keys + kTileBytes, k, kKeys, keys);
    copies_close();
    copies_arrived<1>();
    share_with_units();
    __syncthreads();
    group_open();
    tile.ask_scores(my_queries, all_keys);
    group_wait<0>(tile.s);
    if (kKeys > row_end || kKeys > keys) tile.hide(0, keys, causal != 0, row_end, lane);
    float factors[2];
    tile.weigh(scale, factors);
    // Here the scores of tile `first` have become weights, and the values before it are still being added. That is
    // waited for behind the barrier, so that the softmax above it is computed meanwhile; hence three places for values.
    u32 keys_at = all_keys, keys_next = all_keys + kTileBytes;
    u32 values_at = all_values, values_next = all_values + kTileBytes, values_free = all_values + 2 * kTileBytes;
    for (u32 first = 0;; first += kKeys) {
      const u32 next = first + kKeys;
      copies_arrived<0>();
      share_with_units();
      __syncthreads();  // of all threads; and all are done with the keys of this tile and the values two before it
      if (next < end) {
        if (next + kKeys < end) fetch<kKeys>(keys_at, k, next + kKeys, keys);
        fetch<kKeys>(values_next, v, next, keys);
      }
      copies_close();
      group_wait<0>(tile.o);
      tile.rescale(factors);
      tile.pack();
      group_open();
      if (next >= end) {
        tile.ask_values(values_at);
        group_wait<0>(tile.o);
        break;
      }
      tile.ask_scores(my_queries, keys_next);
      tile.ask_values(values_at);
      group_wait<1>(tile.s);
      if (next + kKeys > row_end || next + kKeys > keys) tile.hide(next, keys, causal != 0, row_end, lane);
      tile.weigh(scale, factors);
      u32 turn = keys_at;
      keys_at = keys_next;
      keys_next = turn;
      turn = values_free;
      values_free = values_at;
      values_at = values_next;
      values_next = turn;
    }

    // Through the shared memory of the queries, which are no longer needed, to whole pieces.
    Words* const rows = pool + (shared - start) / 16;
    __syncthreads();
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      tile.sum[half] += shuffle_xor(tile.sum[half], 1);
      tile.sum[half] += shuffle_xor(tile.sum[half], 2);
      const float share = reciprocal(tile.sum[half]);
      const u32 row = warp * 16 + 8 * (u32)half + lane / 4;
#pragma unroll
      for (int d = 0; d < kHead / 8; ++d)
        rows[place(kBlockRows, row, (u32)d) / 16].w[lane % 4] =
            Type::put_two(tile.o[4 * d + 2 * half] * share, tile.o[4 * d + 2 * half + 1] * share);
    }
    sync_warp();
#pragma unroll
    for (u32 i = 0; i < 16 * kPieces / 32; ++i) {
      const u32 row = (i * 32 + lane) / kPieces, piece = (i * 32 + lane) % kPieces;
      if (warp_row + row < queries)
        store_words(out + (u64)(warp_row + row) * kHead + piece * 8,
                    rows[place(kBlockRows, warp * 16 + row, piece) / 16]);
    }
  }
};

#ifdef HEAD
KERNEL void __launch_bounds__(256, 1) attention_groups(const u16* q, const u16* k, const u16* v, u16* out, u32 heads,
                                                       u32 group, u32 queries, u32 keys, u32 causal, float scale) {
  GroupTile<T, HEAD, KEYS>::run(q, k, v, out, heads, group, queries, keys, causal, scale);
}
#endif
#endif
