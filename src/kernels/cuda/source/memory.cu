// Streams over memory. A block takes tiles of blockDim.x * UNROLL * 16 bytes, its own first, then the next of the grid:
// one tile each with a large grid, many with one that just fills the GPU. All loads of a tile are under way before the
// first is used. Counts are in units of 16 bytes.
//
// Macros: UNROLL.

#define EACH_TILE                                                          \
  const u64 tile = (u64)blockDim.x * UNROLL, step = (u64)gridDim.x * tile; \
  for (u64 base = (u64)blockIdx.x * tile + threadIdx.x; base < count; base += step)
#define EACH_WORD _Pragma("unroll") for (int k = 0; k < UNROLL; ++k)
#define WORD_INDEX (base + (u64)k * blockDim.x)

// partial[block]: the sum of the block's 32-bit words modulo 2^32.
KERNEL void memory_read(const Words* from, u64 count, u32* partial) {
  u32 sum = 0;
  EACH_TILE {
    Words v[UNROLL];
    EACH_WORD {
      v[k].w[0] = v[k].w[1] = v[k].w[2] = v[k].w[3] = 0;
      if (WORD_INDEX < count) v[k] = load_past_l1(from + WORD_INDEX);
    }
    EACH_WORD sum += v[k].w[0] + v[k].w[1] + v[k].w[2] + v[k].w[3];
  }
  __shared__ u32 sums[32];
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) sum += shuffle_xor(sum, lanes);
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x == 0) {
    u32 all = 0;
    for (u32 i = 0; i < blockDim.x / 32; ++i) all += sums[i];
    partial[blockIdx.x] = all;
  }
}

// Every 32-bit word becomes `bits`.
KERNEL void memory_write(Words* to, u64 count, u32 bits) {
  Words v;
  v.w[0] = v.w[1] = v.w[2] = v.w[3] = bits;
  EACH_TILE { EACH_WORD if (WORD_INDEX < count) store_words(to + WORD_INDEX, v); }
}

KERNEL void memory_copy(Words* to, const Words* from, u64 count) {
  EACH_TILE {
    Words v[UNROLL];
    EACH_WORD if (WORD_INDEX < count) v[k] = load_stream(from + WORD_INDEX);
    EACH_WORD if (WORD_INDEX < count) store_words(to + WORD_INDEX, v[k]);
  }
}

// a[i] = b[i] + scale * c[i], fp32, one rounding.
KERNEL void memory_triad(Words* a, const Words* b, const Words* c, u64 count, float scale) {
  EACH_TILE {
    Words x[UNROLL], y[UNROLL];
    EACH_WORD if (WORD_INDEX < count) {
      x[k] = load_stream(b + WORD_INDEX);
      y[k] = load_stream(c + WORD_INDEX);
    }
    EACH_WORD if (WORD_INDEX < count) {
#pragma unroll
      for (int i = 0; i < 4; ++i) x[k].w[i] = bits_of(fmaf(scale, float_of(y[k].w[i]), float_of(x[k].w[i])));
      store_words(a + WORD_INDEX, x[k]);
    }
  }
}
