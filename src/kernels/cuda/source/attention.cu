// Attention of a prompt over its keys, full or causal. What bounds it is the matrix units.
//
// A block takes WARPS x ROWS queries of one head and walks over the keys in tiles of KEYS; the next tile is on its way
// into shared memory while one is worked on, so there is one barrier per tile. A warp keeps its ROWS queries, their
// largest scores, sums and weighted values to itself: scores of a tile are products of 16 x 16 pieces read by ldmatrix,
// the weights are the left operand of the second product as they come out of the first. 32 rows per warp use each piece
// of keys and values twice, which shared memory needs to keep up; heads of 256 leave registers for 16.
//
// Macros: T (Bf16, Fp16), HEAD (64, 128, 256), ROWS (16, 32), KEYS (32, 64, 128), WARPS (4, 8).

constexpr float kNoScore = -1.0e30f;

// q and out: [batch * heads][queries][kHead]; k and v: [batch * heads / group][keys][kHead]. Causal: query i sees the
// keys up to keys - queries + i. Blocks: row blocks x (batch * heads), those with the most keys first. `scale`: of the
// scores, times log2(e). Rows behind the end are read as the last one; those of keys weigh nothing, those of queries
// are not written.
template <class Type, int kHead, int kRows, int kKeys, int kWarps>
struct PromptTile {
  static constexpr int kTiles = kRows / 16;
  static constexpr u32 kPieces = kHead / 8;  // of 16 bytes, in a row
  static constexpr u32 kBlockRows = kRows * kWarps, kThreads = 32 * kWarps;
  // Where the registers allow it, queries are read from shared memory once.
  static constexpr bool kHeld = kHead * kRows <= 64 * 32;

  float o[kTiles][kHead / 8][4];
  float most[kTiles][2], sum[kTiles][2];
  u32 held[kHeld ? kHead / 16 : 1][kTiles][4];

  static constexpr u32 kRowBytes = kPieces * 16, kTileBytes = kKeys * kRowBytes;

  // Eight rows of a piece lie in different banks.
  static __device__ __forceinline__ u32 place(u32 row, u32 piece) { return row * kPieces + (piece ^ (row % 8)); }
  // Where a lane finds what it reads of a tile, in bytes. Piece 2 c + odd of row `row` is at `at[c % 4]`, and 128 bytes
  // further for each four of c, since only the lower three bits of a piece are turned around.
  struct Places {
    u32 at[4];
    __device__ __forceinline__ Places(u32 row, u32 odd) {
#pragma unroll
      for (u32 c = 0; c < 4; ++c) at[c] = place(row, 2 * c + odd) * 16;
    }
    // Of 16 rows from `row` on, which is a multiple of 16.
    __device__ __forceinline__ u32 of(u32 tile, u32 row, u32 c) const {
      return tile + at[c % 4] + row * kRowBytes + c / 4 * 128;
    }
  };

  // kCount rows from `first` on.
  template <int kCount>
  static __device__ __forceinline__ void fetch(u32 to, const u16* from, u32 first, u32 size) {
    static_assert(kCount * kPieces % kThreads == 0, "each thread copies as much");
    const u32 my_row = threadIdx.x / kPieces, piece = threadIdx.x % kPieces;
    const auto each = [&](const auto& row_of) {
#pragma unroll
      for (u32 i = 0; i < kCount * kPieces / kThreads; ++i) {
        const u32 row = i * (kThreads / kPieces) + my_row;
        copy_async(to + place(row, piece) * 16, row_of(i, row));
      }
    };
    const u16* const mine = from + (u64)(first + my_row) * kHead + piece * 8;
    if (first + kCount <= size)
      each([&](u32 i, u32) { return mine + i * (kThreads / kPieces * kHead); });
    else
      each([&](u32, u32 row) { return from + (u64)(first + row < size ? first + row : size - 1) * kHead + piece * 8; });
  }
  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int m = 0; m < kTiles; ++m) {
#pragma unroll
      for (int d = 0; d < kHead / 8; ++d) o[m][d][0] = o[m][d][1] = o[m][d][2] = o[m][d][3] = 0;
      most[m][0] = most[m][1] = kNoScore;
      sum[m][0] = sum[m][1] = 0;
    }
  }
  // 16 elements of the warp's queries, as the left operand.
  static __device__ __forceinline__ void load_queries(u32 (&a)[kTiles][4], u32 rows, const Places& straight, int c) {
#pragma unroll
    for (int m = 0; m < kTiles; ++m) load_matrices(a[m], straight.of(rows, (u32)m * 16, (u32)c));
  }
  __device__ __forceinline__ void hold(u32 rows, const Places& straight) {
    if constexpr (kHeld) {
#pragma unroll
      for (int c = 0; c < kHead / 16; ++c) load_queries(held[c], rows, straight, c);
    }
  }
  __device__ __forceinline__ void score(float (&s)[kTiles][kKeys / 8][4], u32 rows, const Places& straight, u32 keys,
                                        const Places& crossed) const {
#pragma unroll
    for (int c = 0; c < kHead / 16; ++c) {
      u32 a[kTiles][4];
      if constexpr (!kHeld) load_queries(a, rows, straight, c);
#pragma unroll
      for (int n = 0; n < kKeys / 16; ++n) {
        u32 b[4];
        load_matrices(b, crossed.of(keys, (u32)n * 16, (u32)c));
#pragma unroll
        for (int m = 0; m < kTiles; ++m) {
          const u32* const left = kHeld ? held[kHeld ? c : 0][m] : a[m];
          Type::mma(s[m][2 * n], left[0], left[1], left[2], left[3], b[0], b[1]);
          Type::mma(s[m][2 * n + 1], left[0], left[1], left[2], left[3], b[2], b[3]);
        }
      }
    }
  }
  // Scores become weights.
  __device__ __forceinline__ void weigh(float (&s)[kTiles][kKeys / 8][4], float scale) {
#pragma unroll
    for (int m = 0; m < kTiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float here = kNoScore;
#pragma unroll
        for (int n = 0; n < kKeys / 8; ++n) here = Max::of(here, Max::of(s[m][n][2 * half], s[m][n][2 * half + 1]));
        here = Max::of(here, shuffle_xor(here, 1));
        here = Max::of(here, shuffle_xor(here, 2)) * scale;
        if (here > most[m][half]) {
          const float factor = exp2_fast(most[m][half] - here);
          most[m][half] = here;
          sum[m][half] *= factor;
#pragma unroll
          for (int d = 0; d < kHead / 8; ++d) {
            o[m][d][2 * half] *= factor;
            o[m][d][2 * half + 1] *= factor;
          }
        }
#pragma unroll
        for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
          for (int e = 2 * half; e < 2 * half + 2; ++e) {
            s[m][n][e] = exp2_fast(s[m][n][e] * scale - most[m][half]);
            sum[m][half] += s[m][n][e];
          }
        }
      }
    }
  }
  __device__ __forceinline__ void add(const float (&s)[kTiles][kKeys / 8][4], u32 values, const Places& straight) {
#pragma unroll
    for (int j = 0; j < kKeys / 16; ++j) {
      u32 weights[kTiles][4];
#pragma unroll
      for (int m = 0; m < kTiles; ++m) {
#pragma unroll
        for (int i = 0; i < 4; ++i)
          weights[m][i] = Type::put_two(s[m][2 * j + i / 2][i % 2 * 2], s[m][2 * j + i / 2][i % 2 * 2 + 1]);
      }
#pragma unroll
      for (int d = 0; d < kHead / 16; ++d) {
        u32 b[4];
        load_matrices_turned(b, straight.of(values, (u32)j * 16, (u32)d));
#pragma unroll
        for (int m = 0; m < kTiles; ++m) {
          const u32* const left = weights[m];
          Type::mma(o[m][2 * d], left[0], left[1], left[2], left[3], b[0], b[1]);
          Type::mma(o[m][2 * d + 1], left[0], left[1], left[2], left[3], b[2], b[3]);
        }
      }
    }
  }
  // Through the shared memory of the warp's queries, which are no longer needed, to whole pieces.
  __device__ __forceinline__ void write(Words* rows, u16* out, u32 first, u32 queries, u32 lane) {
    sync_warp();
#pragma unroll
    for (int m = 0; m < kTiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        sum[m][half] += shuffle_xor(sum[m][half], 1);
        sum[m][half] += shuffle_xor(sum[m][half], 2);
        const float share = reciprocal(sum[m][half]);
        const u32 row = (u32)m * 16 + 8 * (u32)half + lane / 4;
#pragma unroll
        for (int d = 0; d < kHead / 8; ++d)
          rows[place(row, (u32)d)].w[lane % 4] =
              Type::put_two(o[m][d][2 * half] * share, o[m][d][2 * half + 1] * share);
      }
    }
    sync_warp();
#pragma unroll
    for (u32 i = 0; i < kRows * kPieces / 32; ++i) {
      const u32 row = (i * 32 + lane) / kPieces, piece = (i * 32 + lane) % kPieces;
      if (first + row < queries) store_words(out + (u64)(first + row) * kHead + piece * 8, rows[place(row, piece)]);
    }
  }

  static __device__ __forceinline__ void run(const u16* q, const u16* k, const u16* v, u16* out, u32 heads, u32 group,
                                             u32 queries, u32 keys, u32 causal, float scale) {
    DYNAMIC_SHARED(pool);
    const u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const u32 head = blockIdx.x % heads, first_row = (gridDim.x / heads - 1 - blockIdx.x / heads) * kBlockRows;
    const u32 warp_row = first_row + warp * kRows;
    q += (u64)head * queries * kHead;
    out += (u64)head * queries * kHead;
    k += (u64)(head / group) * keys * kHead;
    v += (u64)(head / group) * keys * kHead;
    // Row i sees the keys before `shown` + i, but no more than there are.
    const u32 shown = causal != 0 ? keys - queries + 1 : keys;
    const u32 block_end = shown + first_row + kBlockRows - 1;
    const u32 end = causal != 0 && block_end < keys ? block_end : keys;
    const u32 warp_end = causal != 0 ? shown + warp_row + kRows - 1 : keys;

    Words* const my_rows = pool + warp * kRows * kPieces;
    const u32 shared = shared_at(pool), stages = shared + kBlockRows * kRowBytes;
    const u32 my_shared = shared + warp * kRows * kRowBytes;
    const Places straight(lane % 16, lane / 16), crossed(lane / 16 * 8 + lane % 8, lane / 8 % 2);
    fetch<(int)kBlockRows>(shared, q, first_row, queries);
    fetch<kKeys>(stages, k, 0, keys);
    fetch<kKeys>(stages + kTileBytes, v, 0, keys);
    copies_close();
    PromptTile tile;
    tile.clear();
    u32 here = stages, there = stages + 2 * kTileBytes;
    for (u32 first = 0; first < end; first += kKeys) {
      copies_arrived<0>();
      __syncthreads();  // of all threads; and all have read what is overwritten next
      if (first == 0) tile.hold(my_shared, straight);
      const u32 tile_at = here;
      if (first + kKeys < end) {
        fetch<kKeys>(there, k, first + kKeys, keys);
        fetch<kKeys>(there + kTileBytes, v, first + kKeys, keys);
      }
      copies_close();
      here = there;
      there = tile_at;
      if (first >= warp_end) continue;
      float s[kTiles][kKeys / 8][4] = {};
      tile.score(s, my_shared, straight, tile_at, crossed);
      const u32 row_end = causal != 0 ? shown + warp_row : keys;
      if (first + kKeys > row_end || first + kKeys > keys) {
#pragma unroll
        for (int m = 0; m < kTiles; ++m) {
#pragma unroll
          for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
            for (int e = 0; e < 4; ++e) {
              const u32 row = (u32)m * 16 + lane / 4 + (u32)(e / 2) * 8;
              const u32 key = first + (u32)n * 8 + lane % 4 * 2 + (u32)(e % 2);
              if (key >= keys || (causal != 0 && key >= row_end + row)) s[m][n][e] = kNoScore;
            }
          }
        }
      }
      tile.weigh(s, scale);
      tile.add(s, tile_at + kTileBytes, straight);
    }
    tile.write(my_rows, out, warp_row, queries, lane);
  }
};

#ifdef HEAD
KERNEL void __launch_bounds__(32 * WARPS) attention(const u16* q, const u16* k, const u16* v, u16* out, u32 heads,
                                                    u32 group, u32 queries, u32 keys, u32 causal, float scale) {
  PromptTile<T, HEAD, ROWS, KEYS, WARPS>::run(q, k, v, out, heads, group, queries, keys, causal, scale);
}
#endif
