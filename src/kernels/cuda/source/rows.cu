// Operators over rows: a block takes a row, then the next of the grid. A thread keeps ITEMS packs of 16 bytes of its
// row in registers, so memory is read once. `packs` is the length of a row in packs; blockDim.x * ITEMS covers it.
//
// Macros: T (Bf16, Fp16, Fp32), ITEMS.

#define EACH_ROW for (u64 row = blockIdx.x; row < rows; row += gridDim.x)
#define EACH_ITEM _Pragma("unroll") for (int i = 0; i < ITEMS; ++i)
#define ITEM_INDEX (threadIdx.x + (u32)i * blockDim.x)
#define HAS_ITEM (ITEM_INDEX < packs)

struct RowOfPacks {
  Words words[ITEMS];
  __device__ __forceinline__ void load(const Words* row, u32 packs) {
    EACH_ITEM if (HAS_ITEM) words[i] = load_stream(row + ITEM_INDEX);
  }
};

// out = x / sqrt(mean(x^2) + epsilon) * gain.
__device__ __forceinline__ void write_rmsnorm(const RowOfPacks& in, const Words* gain, Words* out, u32 packs,
                                              float epsilon, float* scratch) {
  float squares = 0;
  EACH_ITEM if (HAS_ITEM) {
    Pack<T> x;
    x.unpack(in.words[i]);
#pragma unroll
    for (int e = 0; e < Pack<T>::kCount; ++e) squares += x.v[e] * x.v[e];
  }
  squares = block_reduce<Sum>(squares, scratch);
  const float scale = inverse_root(squares / (float)(packs * Pack<T>::kCount) + epsilon);
  EACH_ITEM if (HAS_ITEM) {
    Pack<T> x, g;
    x.unpack(in.words[i]);
    g.unpack(load_words(gain + ITEM_INDEX));
#pragma unroll
    for (int e = 0; e < Pack<T>::kCount; ++e) x.v[e] *= scale * g.v[e];
    store_words(out + ITEM_INDEX, x.packed());
  }
}

KERNEL void rmsnorm(const Words* x, const Words* gain, Words* out, u64 rows, u32 packs, float epsilon) {
  __shared__ float scratch[32];
  EACH_ROW {
    RowOfPacks in;
    in.load(x + row * packs, packs);
    write_rmsnorm(in, gain, out + row * packs, packs, epsilon, scratch);
  }
}

// residual += x, rounded as it is stored; out = rmsnorm(residual).
KERNEL void rmsnorm_residual(const Words* x, Words* residual, const Words* gain, Words* out, u64 rows, u32 packs,
                             float epsilon) {
  __shared__ float scratch[32];
  EACH_ROW {
    RowOfPacks in, kept;
    in.load(x + row * packs, packs);
    EACH_ITEM if (HAS_ITEM) kept.words[i] = load_words(residual + row * packs + ITEM_INDEX);
    EACH_ITEM if (HAS_ITEM) {
      Pack<T> a, b;
      a.unpack(in.words[i]);
      b.unpack(kept.words[i]);
#pragma unroll
      for (int e = 0; e < Pack<T>::kCount; ++e) a.v[e] += b.v[e];
      in.words[i] = a.packed();
      store_words(residual + row * packs + ITEM_INDEX, in.words[i]);
    }
    write_rmsnorm(in, gain, out + row * packs, packs, epsilon, scratch);
  }
}

// Sum and sum of squares of what the lanes of a warp hold. 16-bit elements by tile products, since three instructions
// then do for eight elements what takes 32 otherwise: with a pack as a 16 x 16 tile A, the rows of A times ones are
// sums, and the diagonal of A times its own transpose (half of it at a time: a lane's words of A are its words of the
// transpose too) is sums of squares. Products are exact in fp32.
struct TileMoments {
  float sum[4], low[4], high[4];
  __device__ __forceinline__ TileMoments() {
#pragma unroll
    for (int i = 0; i < 4; ++i) sum[i] = low[i] = high[i] = 0;
  }
  template <class Type>
  __device__ __forceinline__ void add(Words words) {
    const u32* const w = words.w;
    Type::mma(sum, w[0], w[1], w[2], w[3], Type::kOnes, Type::kOnes);
    Type::mma(low, w[0], w[1], w[2], w[3], w[0], w[2]);
    Type::mma(high, w[0], w[1], w[2], w[3], w[1], w[3]);
  }
  __device__ __forceinline__ TwoSums of_warp() const {
    const u32 lane = threadIdx.x % 32, row = lane / 4;
    const float odd = low[1] + high[3], even = low[0] + high[2];
    TwoSums v = {sum[0] + sum[2], lane % 4 != row / 2 ? 0.0f : row % 2 != 0 ? odd : even};
#pragma unroll
    for (int lanes = 4; lanes <= 16; lanes *= 2) v.first += shuffle_xor(v.first, lanes);
    v.second = warp_reduce<Sum>(v.second);
    return v;
  }
};

// Sums of x - shift and of its square.
template <bool kFull>
__device__ __forceinline__ TwoSums moments_about(float shift, const RowOfPacks& in, u32 packs) {
  TwoSums sums = {0, 0};
  EACH_ITEM if (kFull || HAS_ITEM) {
    Pack<T> a;
    a.unpack(unrelated(in.words[i]));  // or all elements would be kept in registers for what follows
#pragma unroll
    for (int e = 0; e < Pack<T>::kCount; ++e) {
      const float d = a.v[e] - shift;
      sums.first += d;
      sums.second += d * d;
    }
  }
  return {warp_reduce<Sum>(sums.first), warp_reduce<Sum>(sums.second)};
}

struct Moments {
  float mean, variance;
};
// `scratch`: 128 floats, not those of the call before.
template <bool kFull>
__device__ __forceinline__ Moments moments_of(const RowOfPacks& in, const Words* row, u32 packs, float* scratch) {
  const float share = reciprocal_fast((float)(packs * Pack<T>::kCount));
  Moments moments;
  float shift;
  if constexpr (Pack<T>::kCount == 8) {
    TileMoments tiles;
    EACH_ITEM {
      Words words = {};
      if (kFull || HAS_ITEM) words = in.words[i];
      tiles.add<T>(words);
    }
    const TwoSums sums = block_sums(tiles.of_warp(), scratch);
    moments.mean = sums.first * share;
    const float square = sums.second * share;
    moments.variance = square - moments.mean * moments.mean;
    // A mean far from zero costs digits; such rows are summed again, about it.
    if (!(square > 64 * moments.variance)) return moments;
    shift = moments.mean;
  } else {
    Pack<T> head;
    head.unpack(load_words(row));
    shift = head.v[0];
  }
  const TwoSums sums = block_sums(moments_about<kFull>(shift, in, packs), scratch + 64);
  const float offset = sums.first * share, variance = sums.second * share - offset * offset;
  moments.mean = offset + shift;
  moments.variance = variance > 0 ? variance : 0;
  return moments;
}

// tanh(u) = 2 / (1 + exp(-2 u)) - 1, so gelu(y) = y / (1 + exp(-2 u)), u = sqrt(2 / pi) (y + 0.044715 y^3). A
// reciprocal for each element, though an SM does few of them: one for two elements takes four instructions more, a
// bound for the exponents among them, since the product of what each is divided by must stay finite, and was 2 % slower
// on an H200 at its power limit. Here an infinite power gives 0. tanh.approx would be one instruction for all, and is
// off by 2^-11 of y, more than a bf16 may be where gelu(y) is small.
__device__ __forceinline__ float gelu_of(float y) {
  return y * reciprocal_fast(1.0f + exp2_fast(y * (-2.302208198f - 0.1029432397f * (y * y))));
}

// y = (x - mean) / sqrt(variance + epsilon) * gain + bias; out = gelu(y) by tanh. kFull: the block's threads have an
// item each, every time.
template <bool kFull>
__device__ __forceinline__ void layernorm_gelu_as(const Words* x, const Words* gain, const Words* bias, Words* out,
                                                  u64 rows, u32 packs, float epsilon, float* scratch) {
  u32 turn = 0;
  EACH_ROW {
    const Words* const row_x = x + row * packs;
    RowOfPacks in;
    EACH_ITEM if (kFull || HAS_ITEM) in.words[i] = load_stream(row_x + ITEM_INDEX);
    const Moments moments = moments_of<kFull>(in, row_x, packs, scratch + turn * 128);
    const float scale = inverse_root_fast(moments.variance + epsilon), offset = -moments.mean * scale;
    Words* const row_out = out + row * packs;
    EACH_ITEM if (kFull || HAS_ITEM) {
      Pack<T> a, g, b;
      a.unpack(in.words[i]);
      g.unpack(load_words(gain + ITEM_INDEX));
      b.unpack(load_words(bias + ITEM_INDEX));
#pragma unroll
      for (int e = 0; e < Pack<T>::kCount; ++e) {
        // One instruction less, where the elements have no digits that it could lose.
        const float normal = Pack<T>::kCount == 8 ? a.v[e] * scale + offset : (a.v[e] - moments.mean) * scale;
        a.v[e] = gelu_of(normal * g.v[e] + b.v[e]);
      }
      store_words(row_out + ITEM_INDEX, a.packed());
    }
    turn ^= 1;
  }
}

// Registers for two blocks of 512 threads or four of 256 in an SM, where the compiler would take more.
#if ITEMS == 2 || ITEMS == 4
#define LAYERNORM_BOUNDS __launch_bounds__(512, 2)
#else
#define LAYERNORM_BOUNDS
#endif
KERNEL void LAYERNORM_BOUNDS layernorm_gelu(const Words* x, const Words* gain, const Words* bias, Words* out, u64 rows,
                                            u32 packs, float epsilon) {
  __shared__ float scratch[2 * 128];
  if (packs == ITEMS * blockDim.x)
    layernorm_gelu_as<true>(x, gain, bias, out, rows, packs, epsilon, scratch);
  else
    layernorm_gelu_as<false>(x, gain, bias, out, rows, packs, epsilon, scratch);
}

KERNEL void softmax(const Words* x, Words* out, u64 rows, u32 packs) {
  __shared__ float scratch[32];
  EACH_ROW {
    RowOfPacks in;
    in.load(x + row * packs, packs);
    float most = Max::kNone;
    EACH_ITEM if (HAS_ITEM) {
      Pack<T> a;
      a.unpack(in.words[i]);
#pragma unroll
      for (int e = 0; e < Pack<T>::kCount; ++e) most = Max::of(most, a.v[e]);
    }
    most = block_reduce<Max>(most, scratch);
    float sum = 0;
    EACH_ITEM if (HAS_ITEM) {
      Pack<T> a;
      a.unpack(in.words[i]);
#pragma unroll
      for (int e = 0; e < Pack<T>::kCount; ++e) sum += exp2_fast((a.v[e] - most) * 1.4426950408889634f);
    }
    const float scale = reciprocal(block_reduce<Sum>(sum, scratch));
    EACH_ITEM if (HAS_ITEM) {
      Pack<T> a;
      a.unpack(in.words[i]);
#pragma unroll
      for (int e = 0; e < Pack<T>::kCount; ++e) a.v[e] = exp2_fast((a.v[e] - most) * 1.4426950408889634f) * scale;
      store_words(out + row * packs + ITEM_INDEX, a.packed());
    }
  }
}

// Rows too long for registers: largest value and sum in one pass, read again from L2 for the second.
KERNEL void softmax_long(const Words* x, Words* out, u64 rows, u32 packs) {
  __shared__ float scratch[32];
  EACH_ROW {
    const Words* from = x + row * packs;
    float most = Max::kNone, sum = 0;
    for (u32 base = 0; base < packs; base += ITEMS * blockDim.x) {
      Words words[ITEMS];
      EACH_ITEM if (base + ITEM_INDEX < packs) words[i] = load_words(from + base + ITEM_INDEX);
      EACH_ITEM if (base + ITEM_INDEX < packs) {
        Pack<T> a;
        a.unpack(words[i]);
        float here = a.v[0];
#pragma unroll
        for (int e = 1; e < Pack<T>::kCount; ++e) here = Max::of(here, a.v[e]);
        if (here > most) {
          sum *= exp2_fast((most - here) * 1.4426950408889634f);
          most = here;
        }
#pragma unroll
        for (int e = 0; e < Pack<T>::kCount; ++e) sum += exp2_fast((a.v[e] - most) * 1.4426950408889634f);
      }
    }
    const float all = block_reduce<Max>(most, scratch);
    const float scale = reciprocal(block_reduce<Sum>(sum * exp2_fast((most - all) * 1.4426950408889634f), scratch));
    for (u32 base = 0; base < packs; base += ITEMS * blockDim.x) {
      Words words[ITEMS];
      EACH_ITEM if (base + ITEM_INDEX < packs) words[i] = load_words(from + base + ITEM_INDEX);
      EACH_ITEM if (base + ITEM_INDEX < packs) {
        Pack<T> a;
        a.unpack(words[i]);
#pragma unroll
        for (int e = 0; e < Pack<T>::kCount; ++e) a.v[e] = exp2_fast((a.v[e] - all) * 1.4426950408889634f) * scale;
        store_words(out + row * packs + base + ITEM_INDEX, a.packed());
      }
    }
  }
}

// A scale per row, 448 for the largest: out = e4m3(x / scale), scales[row] = largest / 448.
KERNEL void quantise(const Words* x, u8* out, float* scales, u64 rows, u32 packs) {
  __shared__ float scratch[32];
  EACH_ROW {
    RowOfPacks in;
    in.load(x + row * packs, packs);
    float most = 0;
    EACH_ITEM if (HAS_ITEM) {
      Pack<T> a;
      a.unpack(in.words[i]);
#pragma unroll
      for (int e = 0; e < Pack<T>::kCount; ++e) most = Max::of(most, a.v[e] < 0 ? -a.v[e] : a.v[e]);
    }
    most = block_reduce<Max>(most, scratch);
    const float scale = most > 0 ? most / 448.0f : 1.0f, inverse = 1.0f / scale;
    if (threadIdx.x == 0) scales[row] = scale;
    EACH_ITEM if (HAS_ITEM) {
      Pack<T> a;
      a.unpack(in.words[i]);
      // As many bytes as there are elements in the pack: 8 or 4.
      u32 bytes[Pack<T>::kCount / 4];
#pragma unroll
      for (int e = 0; e < Pack<T>::kCount; e += 4) {
        bytes[e / 4] = fp8_pair(a.v[e] * inverse, a.v[e + 1] * inverse) |
                       (u32)fp8_pair(a.v[e + 2] * inverse, a.v[e + 3] * inverse) << 16;
      }
      u32* to = (u32*)(out + (row * packs + ITEM_INDEX) * Pack<T>::kCount);
#pragma unroll
      for (int e = 0; e < Pack<T>::kCount / 4; ++e) to[e] = bytes[e];
    }
  }
}
