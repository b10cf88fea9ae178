// Attention of one new query per sequence over the keys and values kept so far. What bounds it is reading those once.
//
// A block takes one sequence, one key head and a stretch of the keys; its rows are the query heads of that key head, in
// the 16 rows of mma.m16n8k16. Each warp walks over tiles of its own and keeps STAGES - 1 of them on their way into
// shared memory; with STAGES 1 the next tile comes straight into the registers that this one leaves. The order of the
// elements within a product is free, so 16-byte pieces are dealt out such that a thread multiplies pieces as they lie:
// the fragments need no transposition across threads, and warps need no barrier until the end. Then warps are summed
// through shared memory, and where keys are split over blocks the last of them to finish sums all.
//
// Macros: T (Bf16, Fp16), HEAD (64, 128, 256), ROWS (8, 16), STAGES, PAGED (0, 1).

constexpr u32 kPageTokens = 16;
constexpr float kNoScore = -1.0e30f;

// Strides are in elements. Contiguous: keys of one sequence and head are at sequence * outer + head * head_stride + key
// * token_stride. Paged: page table[sequence * pages + key / 16] * outer + head * head_stride + key % 16 *
// token_stride.
struct Cache {
  const u16* k;
  const u16* v;
  const u32* table;
  u64 outer, head_stride, token_stride;
};

template <int kHead, int kStages, bool kPaged>
struct KeyTiles {
  static constexpr u32 kKeys = kHead >= 128 ? 16 : 32;
  static constexpr int kGroups = kKeys / 16;               // each is a page, or lies in one
  static constexpr int kWords = (int)kKeys * kHead / 256;  // pieces of 16 bytes per thread, of K and of V

  const u16 *k, *v;
  const u32* table;
  u64 outer, token_stride;
  u32 context, lane;
  u32 pages[kGroups];

  __device__ __forceinline__ void start(const Cache& cache, u32 sequence, u32 head, u32 context_, u32 lane_) {
    context = context_;
    lane = lane_;
    outer = cache.outer;
    token_stride = cache.token_stride;
    const u64 at = (kPaged ? 0 : sequence * cache.outer) + head * cache.head_stride;
    k = cache.k + at;
    v = cache.v + at;
    table = cache.table + (u64)sequence * ((context + kPageTokens - 1) / kPageTokens);
  }
  // Where a group of 16 keys starts; behind the end it is the last group again.
  __device__ __forceinline__ u32 group_start(u32 first, int group) const {
    const u32 wanted = first + 16u * (u32)group, last = (context - 1) / 16 * 16;
    return wanted < last ? wanted : last;
  }
  // One tile ahead of `fetch`, so that it does not wait for it.
  __device__ __forceinline__ void look_up(u32 first) {
    if (!kPaged) return;
#pragma unroll
    for (int group = 0; group < kGroups; ++group) pages[group] = table[group_start(first, group) / kPageTokens];
  }
  // Keys behind the end are read as the last one: their scores are not used.
  __device__ __forceinline__ u64 offset(u32 group_first, int group, u32 key) const {
    const u32 left = context - 1 - group_first, token = key < left ? key : left;
    if (kPaged) return pages[group] * outer + token * token_stride;
    return (group_first + token) * token_stride;
  }
  // Piece by piece: take(which of the thread's pieces, where it lies).
  template <class Take>
  __device__ __forceinline__ void each_key_piece(u32 first, const Take& take) const {
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      const u32 start = group_start(first, group);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const u16* row = k + offset(start, group, 8u * (u32)half + lane / 4) + lane % 4 * 8;
#pragma unroll
        for (int c = 0; c < kHead / 32; ++c) take((group * 2 + half) * (kHead / 32) + c, row + c * 32);
      }
    }
  }
  template <class Take>
  __device__ __forceinline__ void each_value_piece(u32 first, const Take& take) const {
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      const u32 start = group_start(first, group);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const u32 key = lane % 4 * 2 + (u32)(i % 2) + (u32)(i / 2) * 8;
        const u16* row = v + offset(start, group, key) + lane / 4 * 8;
#pragma unroll
        for (int h = 0; h < kHead / 64; ++h) take((group * 4 + i) * (kHead / 64) + h, row + h * 64);
      }
    }
  }
  // Through shared memory neighbouring lanes copy neighbouring pieces, 128 bytes of a row for eight of them, to where
  // the lane that multiplies a piece looks. Places are such that lanes that write or read together use all banks.
  static __device__ __forceinline__ u32 key_place(u32 reader, u32 chunk) { return reader ^ (chunk % 2 * 4); }
  static __device__ __forceinline__ u32 value_place(u32 reader) {
    return reader % 4 * 8 + ((reader / 4) ^ (reader % 4 * 2));
  }
  __device__ __forceinline__ void fetch(Words* slot, u32 first) const {
    constexpr int kLines = kHead / 64;  // of a row
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      const int group = i * 4 / kLines / 16;
      const u32 line = (u32)i * 4 + lane / 8, key = line / kLines % 16, h = line % kLines, piece = lane % 8;
      const u64 at = offset(group_start(first, group), group, key) + h * 64 + piece * 8;
      const u32 chunk = 2 * h + piece / 4, key_row = ((u32)group * 2 + key / 8) * (kHead / 32) + chunk;
      copy_async(slot + (key_row * 32 + key_place(key % 8 * 4 + piece % 4, chunk)), k + at);
      const u32 value_row = ((u32)group * 4 + key % 2 + key / 8 * 2) * kLines + h;
      copy_async(slot + ((kWords + value_row) * 32 + value_place(piece * 4 + key % 8 / 2)), v + at);
    }
  }
};

// Largest score, sum of the exponentials and weighted values of the rows of a warp, as its lanes hold them.
template <class Type, int kHead, int kRows>
struct RowSums {
  static constexpr bool kHigh = kRows > 8;
  float o[kHead / 8][4];
  float most[2], sum[2];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int n = 0; n < kHead / 8; ++n) o[n][0] = o[n][1] = o[n][2] = o[n][3] = 0;
    most[0] = most[1] = kNoScore;
    sum[0] = sum[1] = 0;
  }
  // Scores become weights.
  template <int kTiles>
  __device__ __forceinline__ void weigh(float (&s)[kTiles][4], float scale) {
#pragma unroll
    for (int half = 0; half < (kHigh ? 2 : 1); ++half) {
      float here = kNoScore;
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
        here = Max::of(here, s[n][2 * half]);
        here = Max::of(here, s[n][2 * half + 1]);
      }
      here = Max::of(here, shuffle_xor(here, 1));
      here = Max::of(here, shuffle_xor(here, 2)) * scale;
      if (here > most[half]) {
        const float factor = exp2_fast(most[half] - here);
        most[half] = here;
        sum[half] *= factor;
#pragma unroll
        for (int n = 0; n < kHead / 8; ++n) {
          o[n][2 * half] *= factor;
          o[n][2 * half + 1] *= factor;
        }
      }
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
#pragma unroll
        for (int e = 2 * half; e < 2 * half + 2; ++e) {
          s[n][e] = exp2_fast(s[n][e] * scale - most[half]);
          sum[half] += s[n][e];
        }
      }
    }
  }
  // 16 keys: their weights in s0 and s1; values(i): the thread's pieces of four rows.
  template <class Values>
  __device__ __forceinline__ void add(const float (&s0)[4], const float (&s1)[4], const Values& values) {
    const u32 a0 = Type::put_two(s0[0], s0[1]), a2 = Type::put_two(s1[0], s1[1]);
    const u32 a1 = kHigh ? Type::put_two(s0[2], s0[3]) : 0, a3 = kHigh ? Type::put_two(s1[2], s1[3]) : 0;
#pragma unroll
    for (int h = 0; h < kHead / 64; ++h) {
      Words w[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) w[i] = values(i * (kHead / 64) + h);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        Type::mma(o[h * 8 + 2 * j], a0, a1, a2, a3, low_halves(w[0].w[j], w[1].w[j]), low_halves(w[2].w[j], w[3].w[j]));
        Type::mma(o[h * 8 + 2 * j + 1], a0, a1, a2, a3, high_halves(w[0].w[j], w[1].w[j]),
                  high_halves(w[2].w[j], w[3].w[j]));
      }
    }
  }
  // To rows of kHead numbers; the sums over all keys of the warp are then in every lane of a row.
  __device__ __forceinline__ void write(float* rows, float* mosts, float* sums, u32 lane) {
#pragma unroll
    for (int half = 0; half < (kHigh ? 2 : 1); ++half) {
      sum[half] += shuffle_xor(sum[half], 1);
      sum[half] += shuffle_xor(sum[half], 2);
      const u32 row = lane / 4 + 8u * (u32)half;
      if (lane % 4 == 0) {
        mosts[row] = most[half];
        sums[row] = sum[half];
      }
      // Column n of product j is element 8 n + j of a stretch of 64: a lane has 16 neighbours.
#pragma unroll
      for (int h = 0; h < kHead / 64; ++h) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
#pragma unroll
          for (int j = 0; j < 8; ++j)
            rows[row * kHead + (u32)(h * 64 + e * 8 + j) + lane % 4 * 16] = o[h * 8 + j][2 * half + e];
        }
      }
    }
  }
};

struct Four {
  float v[4];
  __device__ __forceinline__ void clear() { v[0] = v[1] = v[2] = v[3] = 0; }
  __device__ __forceinline__ void add(float weight, Words words) {
#pragma unroll
    for (int i = 0; i < 4; ++i) v[i] += weight * float_of(words.w[i]);
  }
  __device__ __forceinline__ Words words() const {
    Words r;
#pragma unroll
    for (int i = 0; i < 4; ++i) r.w[i] = bits_of(v[i]);
    return r;
  }
};

// The last block: `parts` holds what each of the splits found, `scratch` is shared memory.
template <class Type, int kHead, int kRows>
__device__ __forceinline__ void sum_splits(const float* parts, const float* mosts, const float* sums, u32 splits,
                                           u32 used, u16* out, float* scratch) {
  const u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32;
  float* const weights = scratch;  // [row][split]
  for (u32 row = warp; row < used; row += warps) {
    float most = kNoScore, sum = 0;
    for (u32 i = lane; i < splits; i += 32) most = Max::of(most, load_fresh_number(mosts + i * kRows + row));
    most = warp_reduce<Max>(most);
    for (u32 i = lane; i < splits; i += 32) {
      const float weight = exp2_fast(load_fresh_number(mosts + i * kRows + row) - most);
      sum += weight * load_fresh_number(sums + i * kRows + row);
      weights[row * splits + i] = weight;
    }
    const float scale = reciprocal(warp_reduce<Sum>(sum));
    for (u32 i = lane; i < splits; i += 32) weights[row * splits + i] *= scale;
  }
  __syncthreads();
  // Threads left over share the splits of an item, and are summed at the end.
  const u32 items = used * (kHead / 4), shares = items < blockDim.x ? blockDim.x / items : 1;
  Words* const shared = (Words*)scratch + (used * splits + 3) / 4;
  for (u32 item = threadIdx.x % items, share = threadIdx.x / items; item < items; item += blockDim.x) {
    const u32 row = item / (kHead / 4);
    Four all;
    all.clear();
    if (share < shares) {
#pragma unroll 8
      for (u32 i = share; i < splits; i += shares)
        all.add(weights[row * splits + i], load_fresh(parts + ((u64)i * kRows * kHead + item * 4)));
    }
    if (shares > 1) {
      if (share > 0 && share < shares) shared[(share - 1) * items + item] = all.words();
      __syncthreads();
      for (u32 other = 1; share == 0 && other < shares; ++other) all.add(1, shared[(other - 1) * items + item]);
    }
    if (share == 0) {
      u32* const words = (u32*)(out + item * 4);
      words[0] = Type::put_two(all.v[0], all.v[1]);
      words[1] = Type::put_two(all.v[2], all.v[3]);
    }
    if (shares > 1) break;
  }
}

// q and out: [sequence][heads][kHead]; heads is kv_heads * group. Blocks: for each sequence, key head and kRows query
// heads of it, `splits` blocks of split_keys keys each, a multiple of the tile. parts: [row
// block][split][kRows][kHead], mosts and sums: [row block][split][kRows], counters: zero, and zero again afterwards.
template <class Type, int kHead, int kRows, int kStages, bool kPaged>
__device__ __forceinline__ void attention_decode_as(const u16* q, const u16* k, const u16* v, const u32* table,
                                                    u16* out, u64 outer, u64 head_stride, u64 token_stride, u32 context,
                                                    u32 kv_heads, u32 group, u32 splits, u32 split_keys, float scale,
                                                    float* parts, float* mosts, float* sums, u32* counters) {
  typedef KeyTiles<kHead, kStages, kPaged> Tiles;
  typedef RowSums<Type, kHead, kRows> Sums;
  constexpr int kPieces = kHead / 32;
  constexpr bool kHigh = kRows > 8;
  constexpr u32 kWarpsMax = 16;
  __shared__ float warp_mosts[kWarpsMax * kRows], warp_sums[kWarpsMax * kRows];
  __shared__ u32 arrived;
  // Of a long head the queries do not fit the registers beside the sums.
  constexpr bool kHeld = kHead <= 128;
  __shared__ Words queries[kHeld ? 1 : kPieces * 2 * 32];
  DYNAMIC_SHARED(pool);

  const u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32;
  const u32 row_blocks = (group + kRows - 1) / kRows;
  const u32 row_block = blockIdx.x / splits, split = blockIdx.x % splits;
  const u32 first_row = row_block % row_blocks * kRows;
  const u32 used = group - first_row < kRows ? group - first_row : kRows;
  const u32 head = row_block / row_blocks % kv_heads, sequence = row_block / row_blocks / kv_heads;
  const u64 row_at = ((u64)sequence * kv_heads + head) * group + first_row;

  Tiles tiles;
  tiles.start(Cache{k, v, table, outer, head_stride, token_stride}, sequence, head, context, lane);
  const u32 begin = split * split_keys + warp * Tiles::kKeys, step = warps * Tiles::kKeys;
  const u32 end = context - split * split_keys < split_keys ? context : (split + 1) * split_keys;
  Words* const slots = pool + (u64)warp * (kStages * 2 * Tiles::kWords * 32);
  // Of the tile at hand, where it does not go through shared memory.
  constexpr bool kDirect = kStages == 1;
  Words keys[kDirect ? Tiles::kWords : 1], values[kDirect ? Tiles::kWords : 1];
  const auto load_keys = [&](u32 first) {
    tiles.each_key_piece(first, [&](int i, const u16* at) { keys[kDirect ? i : 0] = load_past_l1(at); });
  };
  const auto load_values = [&](u32 first) {
    tiles.each_value_piece(first, [&](int i, const u16* at) { values[kDirect ? i : 0] = load_past_l1(at); });
  };
  tiles.look_up(begin);
  if (kDirect && begin < end) {
    load_keys(begin);
    load_values(begin);
    tiles.look_up(begin + step);
  }
#pragma unroll
  for (int stage = 0; stage < kStages - 1; ++stage) {
    const u32 first = begin + (u32)stage * step;
    if (first < end) {
      tiles.fetch(slots + stage * (2 * Tiles::kWords * 32), first);
      tiles.look_up(first + step);
    }
    copies_close();
  }

  Words held[kHeld ? kPieces : 1][2];
  const Words none = {};
#pragma unroll
  for (int c = 0; c < kPieces; ++c) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const u32 row = lane / 4 + 8u * (u32)half;
      const bool there = row < used && (kHigh || half == 0);
      const Words words = there ? load_past_l1(q + (row_at + row) * kHead + (u32)c * 32 + lane % 4 * 8) : none;
      if (kHeld)
        held[c][half] = words;
      else if (warp == 0)
        queries[(c * 2 + half) * 32 + (int)lane] = words;
    }
  }
  if (!kHeld) __syncthreads();

  Sums row_sums;
  row_sums.clear();
  int stage = 0;
  const Words* const value_slot = slots + Tiles::kWords * 32 + Tiles::value_place(lane);
  for (u32 first = begin; first < end; first += step) {
    if (!kDirect) {
      copies_arrived<kDirect ? 0 : kStages - 2>();
      sync_warp();  // of all lanes; and all have read what is overwritten next
      const u32 ahead = first + (kStages - 1) * step;
      const int free = stage == 0 ? kStages - 1 : stage - 1;
      if (ahead < end) {
        tiles.fetch(slots + free * (2 * Tiles::kWords * 32), ahead);
        tiles.look_up(ahead + step);
      }
      copies_close();
    }
    const u32 next = first + step;
    const Words* const slot = slots + stage * (2 * Tiles::kWords * 32);
    float s[Tiles::kKeys / 8][4] = {};
#pragma unroll
    for (int c = 0; c < kPieces; ++c) {
      const Words low = kHeld ? held[kHeld ? c : 0][0] : queries[(kHeld ? 0 : c) * 64 + (int)lane];
      const Words high = !kHigh  ? none
                         : kHeld ? held[kHeld ? c : 0][1]
                                 : queries[(kHeld ? 0 : c) * 64 + 32 + (int)lane];
#pragma unroll
      for (int n = 0; n < (int)Tiles::kKeys / 8; ++n) {
        const Words key = kDirect ? keys[kDirect ? n * kPieces + c : 0]
                                  : slot[(n * kPieces + c) * 32 + (int)Tiles::key_place(lane, (u32)c)];
        Type::mma(s[n], low.w[0], high.w[0], low.w[1], high.w[1], key.w[0], key.w[1]);
        Type::mma(s[n], low.w[2], high.w[2], low.w[3], high.w[3], key.w[2], key.w[3]);
      }
    }
    if (kDirect && next < end) load_keys(next);
    if (first + Tiles::kKeys > end) {
#pragma unroll
      for (int n = 0; n < (int)Tiles::kKeys / 8; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e)
          if (first + (u32)(n * 8 + e % 2) + lane % 4 * 2 >= end) s[n][e] = kNoScore;
      }
    }
    row_sums.weigh(s, scale);
#pragma unroll
    for (int g = 0; g < Tiles::kGroups; ++g) {
      const int base = g * 4 * (kHead / 64);
      row_sums.add(s[2 * g], s[2 * g + 1], [&](int i) {
        return kDirect ? values[kDirect ? base + i : 0] : value_slot[(stage * 2 * Tiles::kWords + base + i) * 32];
      });
    }
    if (kDirect && next < end) {
      load_values(next);
      tiles.look_up(next + step);
    }
    stage = stage == kStages - 1 ? 0 : stage + 1;
  }

  __syncthreads();
  float* const shared = (float*)pool;
  row_sums.write(shared + (u64)warp * (kRows * kHead), warp_mosts + warp * kRows, warp_sums + warp * kRows, lane);
  __syncthreads();
  for (u32 item = threadIdx.x; item < used * (kHead / 4); item += blockDim.x) {
    const u32 row = item / (kHead / 4);
    float most = kNoScore, sum = 0;
    for (u32 w = 0; w < warps; ++w) most = Max::of(most, warp_mosts[w * kRows + row]);
    Four all;
    all.clear();
    for (u32 w = 0; w < warps; ++w) {
      const float weight = exp2_fast(warp_mosts[w * kRows + row] - most);
      sum += weight * warp_sums[w * kRows + row];
      all.add(weight, pool[w * (kRows * kHead / 4) + item]);
    }
    if (splits == 1) {
      const float whole = reciprocal(sum);
      u32* const words = (u32*)(out + row_at * kHead + item * 4);
      words[0] = Type::put_two(all.v[0] * whole, all.v[1] * whole);
      words[1] = Type::put_two(all.v[2] * whole, all.v[3] * whole);
    } else {
      const u64 part = (u64)row_block * splits + split;
      store_words(parts + part * (kRows * kHead) + item * 4, all.words());
      if (item % (kHead / 4) == 0) {
        mosts[part * kRows + row] = most;
        sums[part * kRows + row] = sum;
      }
    }
  }
  if (splits == 1) return;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) arrived = atomicAdd(counters + row_block, 1u);
  __syncthreads();
  if (arrived != splits - 1) return;
  __threadfence();
  if (threadIdx.x == 0) counters[row_block] = 0;
  const u64 part = (u64)row_block * splits;
  sum_splits<Type, kHead, kRows>(parts + part * (kRows * kHead), mosts + part * kRows, sums + part * kRows, splits,
                                 used, out + row_at * kHead, shared);
}

#ifdef HEAD
KERNEL void __launch_bounds__(256)
    attention_decode(const u16* q, const u16* k, const u16* v, const u32* table, u16* out, u64 outer, u64 head_stride,
                     u64 token_stride, u32 context, u32 kv_heads, u32 group, u32 splits, u32 split_keys, float scale,
                     float* parts, float* mosts, float* sums, u32* counters) {
  attention_decode_as<T, HEAD, ROWS, STAGES, PAGED>(q, k, v, table, out, outer, head_stride, token_stride, context,
                                                    kv_heads, group, splits, split_keys, scale, parts, mosts, sums,
                                                    counters);
}
#endif
