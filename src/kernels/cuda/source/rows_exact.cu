// LayerNorm and GELU of rows that THREADS threads with ITEMS packs of 16 bytes each cover exactly, of types of 16 bits.
// A block takes ROWS rows, keeps them in registers and ends: what hides the latency of memory are the other blocks of
// the SM, as many as MIN_BLOCKS leaves registers for. On a chip at its power limit each instruction costs clock, so
// there are as few as can be: sizes are constants, and rows that a block has at once share what gain and bias take.
//
// A launch has a block for every ROWS rows, of under 2^32 packs in all.
//
// Macros: T (Bf16, Fp16), ITEMS, THREADS (32 to 256), ROWS (1, 2), SHARED (1: two elements share a reciprocal),
// MIN_BLOCKS.
#define EACH_ITEM _Pragma("unroll") for (int i = 0; i < kItems; ++i)
#define EACH_ROW _Pragma("unroll") for (int r = 0; r < kRows; ++r)
#define EACH_ELEMENT _Pragma("unroll") for (int e = 0; e < 8; ++e)

template <class Type, int kItems, int kThreads, int kRows, bool kShared>
struct ExactRows {
  static constexpr u32 kPacks = kItems * kThreads, kWarps = kThreads / 32;
  static constexpr float kShare = 1.0f / (kPacks * 8);
  // gelu(y) = y / (1 + exp2(-y (2.302208198 + 0.1029432397 y^2))), as in rows.cu. Of z = kSigma y, with the cube root
  // of the second number for kSigma, the exponent is -z (z^2 + kLinear): a multiplication less for each element.
  static constexpr float kSigma = 0.46868002f, kLinear = 2.302208198f / kSigma;

  struct Totals {
    float squares, sum;
  };

  // Sums over what a warp has of a row, by tile products: see TileMoments of rows.cu. The diagonal of the products with
  // itself by the short form, for which no words have to be moved beside each other.
  struct Tiles {
    float sum[4], low[4], high[4];
    __device__ __forceinline__ Tiles() {
#pragma unroll
      for (int i = 0; i < 4; ++i) sum[i] = low[i] = high[i] = 0;
    }
    __device__ __forceinline__ void add(const Words& words) {
      const u32* const w = words.w;
      Type::mma(sum, w[0], w[1], w[2], w[3], Type::kHalves, Type::kHalves);
      Type::mma_short(low, w[0], w[1], w[0]);
      Type::mma_short(high, w[0], w[1], w[1]);
      Type::mma_short(low, w[2], w[3], w[2]);
      Type::mma_short(high, w[2], w[3], w[3]);
    }
    // To be added up over the lanes that are equally even: squares in even ones, sums in odd ones.
    __device__ __forceinline__ float merged() const {
      const u32 lane = threadIdx.x % 32, row = lane / 4;
      const float diagonal = row % 2 != 0 ? low[1] + high[3] : low[0] + high[2];
      const float square = lane % 4 == row / 2 ? diagonal : 0.0f, other = shuffle_xor(square, 1);
      return lane % 2 != 0 ? sum[0] + sum[2] : square + other;
    }
  };

  // Of the block: the same in every thread. `scratch`: of each warp and row the sum of squares, then the sum.
  static __device__ __forceinline__ void add_up(const Tiles (&tiles)[kRows], float* scratch, Totals (&totals)[kRows]) {
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    float v;
    if constexpr (kRows == 1) {
      v = tiles[0].merged();
      v += shuffle_xor(v, 2);
    } else {  // the first row's in lanes 0 and 1 of four, the second's in the others
      const float a = tiles[0].merged(), b = tiles[1].merged();
      const bool second = (lane & 2u) != 0;
      const float given = shuffle_xor(second ? a : b, 2);
      v = (second ? b : a) + given;
    }
#pragma unroll
    for (int lanes = 4; lanes <= 16; lanes *= 2) v += shuffle_xor(v, lanes);
    if (lane < 2 * kRows) scratch[warp * (2 * kRows) + lane] = v;
    __syncthreads();
    EACH_ROW {
      totals[r] = {scratch[2 * r], scratch[2 * r + 1]};
#pragma unroll
      for (u32 w = 1; w < kWarps; ++w) {
        totals[r].squares += scratch[w * (2 * kRows) + 2 * r];
        totals[r].sum += scratch[w * (2 * kRows) + 2 * r + 1];
      }
    }
  }

  // Sums of x - shift and of its square, for a row whose mean is far from zero: such rows are few. From memory, so that
  // no registers are needed for it.
  static __device__ __forceinline__ Totals about(float shift, const Words* mine, float* scratch) {
    TwoSums sums = {0, 0};
#pragma unroll 1
    for (int i = 0; i < kItems; ++i) {
      Pack<Type> a;
      a.unpack(load_words(mine + i * kThreads));
      EACH_ELEMENT {
        const float d = a.v[e] - shift;
        sums.first += d;
        sums.second += d * d;
      }
    }
    sums = {warp_reduce<Sum>(sums.first), warp_reduce<Sum>(sums.second)};
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    __syncthreads();  // all have read what was there
    if (lane == 0) scratch[2 * warp] = sums.second;
    if (lane == 0) scratch[2 * warp + 1] = sums.first;
    __syncthreads();
    Totals totals = {0, 0};
#pragma unroll 1
    for (u32 w = 0; w < kWarps; ++w) {
      totals.squares += scratch[2 * w];
      totals.sum += scratch[2 * w + 1];
    }
    return totals;
  }

  static __device__ __forceinline__ Words gelu_of(const float (&z)[8]) {
    float divisor[8];
    EACH_ELEMENT {
      float power = -z[e] * (z[e] * z[e] + kLinear);
      if (kShared) power = power < 60.0f ? power : 60.0f;  // the product of two is finite; gelu is -1e-18 there
      divisor[e] = exp2_fast(power) * kSigma + kSigma;
    }
    Pack<Type> out;
    if constexpr (kShared) {
#pragma unroll
      for (int e = 0; e < 8; e += 2) {
        const float inverse = reciprocal_fast(divisor[e] * divisor[e + 1]);
        out.v[e] = z[e] * divisor[e + 1] * inverse;
        out.v[e + 1] = z[e + 1] * divisor[e] * inverse;
      }
    } else {
      EACH_ELEMENT out.v[e] = z[e] * reciprocal_fast(divisor[e]);
    }
    return out.packed();
  }

  // y = (x - mean) / sqrt(variance + epsilon) * gain + bias; out = gelu(y) by tanh.
  static __device__ __forceinline__ void run(const Words* x, const Words* gain, const Words* bias, Words* out, u32 rows,
                                             float epsilon) {
    alignas(16) __shared__ float scratch[kWarps * kRows * 2];
    // A second row behind the last one is that row again.
    const u32 row = blockIdx.x * kRows;
    const u32 next = kRows == 1 || row + 1 == rows ? 0 : kPacks;
    const u32 at = row * kPacks + threadIdx.x;
    Words words[kRows][kItems];
    EACH_ROW EACH_ITEM words[r][i] = load_stream(x + at + r * next + i * kThreads);
    // The first are there when the sums are.
    gain += threadIdx.x;
    bias += threadIdx.x;
    Words gains = load_gain(gain), biases = load_gain(bias);
    Tiles tiles[kRows];
    EACH_ITEM EACH_ROW tiles[r].add(words[r][i]);
    Totals totals[kRows];
    add_up(tiles, scratch, totals);
    float scale[kRows], offset[kRows];
    EACH_ROW {
      float mean = totals[r].sum * kShare;
      const float square = totals[r].squares * kShare;
      float variance = square - mean * mean;
      if (square > 64 * variance) {  // a mean far from zero costs digits
        const Totals again = about(mean, x + at + r * next, scratch);
        const float more = again.sum * kShare;
        variance = again.squares * kShare - more * more;
        variance = variance > 0 ? variance : 0;
        mean += more;
      }
      scale[r] = inverse_root_fast(variance + epsilon) * kSigma;
      offset[r] = -mean * scale[r];
    }
    Words* const to = out + at;
    EACH_ITEM {
      Pack<Type> g, b, a;
      g.unpack(gains);
      b.unpack(biases);
      if (i + 1 < kItems) gains = load_gain(gain + (i + 1) * kThreads);
      if (i + 1 < kItems) biases = load_gain(bias + (i + 1) * kThreads);
      EACH_ELEMENT b.v[e] *= kSigma;
      EACH_ROW {
        a.unpack(words[r][i]);
        float z[8];
        EACH_ELEMENT z[e] = (a.v[e] * scale[r] + offset[r]) * g.v[e] + b.v[e];
        store_words(to + r * next + i * kThreads, gelu_of(z));
      }
    }
  }
};

#ifdef THREADS
KERNEL void __launch_bounds__(THREADS, MIN_BLOCKS)
    layernorm_gelu_exact(const Words* x, const Words* gain, const Words* bias, Words* out, u32 rows, float epsilon) {
  ExactRows<T, ITEMS, THREADS, ROWS, SHARED>::run(x, gain, bias, out, rows, epsilon);
}
#endif
