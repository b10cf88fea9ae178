// Element types and reductions; after prelude.cuh, or the test's stand-in for it.

// Nearest e4m3, ties to even, too large becomes 448: the numbers of device/elements.h, on chips without the instruction
// too.
__device__ __forceinline__ u8 fp8_of(float v) {
  const u32 sign = bits_of(v) >> 31 << 7;
  const float magnitude = v < 0 ? -v : v;
  if (!(magnitude < 464.0f)) return (u8)(sign | (magnitude != magnitude ? 0x7fu : 0x7eu));
  // Below 2^-6 the unit of the last place stays 2^-9; adding and taking away 1.5 * 2^23 of those units rounds.
  if (magnitude < 0.015625f) return (u8)(sign | (u32)rintf(magnitude * 512.0f));
  const u32 bits = bits_of(magnitude);
  const u32 rounded = bits + 0x7ffffu + ((bits >> 20) & 1u);
  const u32 code = (rounded >> 20) - ((127u - 7u) << 3);
  return (u8)(sign | (code > 0x7eu ? 0x7eu : code));
}
#ifndef LLMPROF_FP8_PAIR
__device__ __forceinline__ u16 fp8_pair(float low, float high) { return (u16)(fp8_of(low) | fp8_of(high) << 8); }
#endif
__device__ __forceinline__ float of_fp8(u8 v) {
  const u32 magnitude = v & 0x7fu;
  const float value =
      magnitude < 8 ? (float)magnitude * 0.001953125f : float_of((magnitude + ((127u - 7u) << 3)) << 20);
  return (v & 0x80u) ? -value : value;
}

// An element type: how it lies in memory and what it is in arithmetic.
struct Fp32 {
  typedef float Stored;
  static __device__ __forceinline__ float get(float v) { return v; }
  static __device__ __forceinline__ float put(float v) { return v; }
};
struct Bf16 {
  typedef u16 Stored;
  static __device__ __forceinline__ float get(u16 v) { return float_of((u32)v << 16); }
  static __device__ __forceinline__ u16 put(float v) { return bf16_of(v); }
  // Of a word: one instruction each, where taking the half first is two.
  static __device__ __forceinline__ float low(u32 word) { return float_of(word << 16); }
  static __device__ __forceinline__ float high(u32 word) { return float_of(word & 0xffff0000u); }
  static __device__ __forceinline__ u32 put_two(float low, float high) { return two_bf16(low, high); }
  static constexpr u32 kOnes = 0x3f803f80u, kHalves = 0x3f003f00u;  // two of 1, of 1/2
  static __device__ __forceinline__ void mma(float* c, u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
    mma_bf16(c, a0, a1, a2, a3, b0, b1);
  }
  static __device__ __forceinline__ void mma_short(float* c, u32 a0, u32 a1, u32 b) { mma_short_bf16(c, a0, a1, b); }
};
struct Fp16 {
  typedef u16 Stored;
  static __device__ __forceinline__ float get(u16 v) { return of_fp16(v); }
  static __device__ __forceinline__ u16 put(float v) { return fp16_of(v); }
  static __device__ __forceinline__ float low(u32 word) { return of_fp16((u16)word); }
  static __device__ __forceinline__ float high(u32 word) { return of_fp16((u16)(word >> 16)); }
  static __device__ __forceinline__ u32 put_two(float low, float high) { return two_fp16(low, high); }
  static constexpr u32 kOnes = 0x3c003c00u, kHalves = 0x38003800u;
  static __device__ __forceinline__ void mma(float* c, u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
    mma_fp16(c, a0, a1, a2, a3, b0, b1);
  }
  static __device__ __forceinline__ void mma_short(float* c, u32 a0, u32 a1, u32 b) { mma_short_fp16(c, a0, a1, b); }
};
struct Fp8 {
  typedef u8 Stored;
  static __device__ __forceinline__ float get(u8 v) { return of_fp8(v); }
  static __device__ __forceinline__ u8 put(float v) { return fp8_of(v); }
};

// As many elements as 16 bytes hold.
template <class T>
struct Pack {
  static constexpr int kCount = 16 / (int)sizeof(typename T::Stored);
  union Bits {
    Words words;
    typename T::Stored elements[16 / sizeof(typename T::Stored)];
  };
  float v[kCount];
  __device__ __forceinline__ void unpack(Words words) {
    if constexpr (kCount == 8) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        v[2 * i] = T::low(words.w[i]);
        v[2 * i + 1] = T::high(words.w[i]);
      }
    } else {
      Bits bits;
      bits.words = words;
#pragma unroll
      for (int i = 0; i < kCount; ++i) v[i] = T::get(bits.elements[i]);
    }
  }
  __device__ __forceinline__ Words packed() const {
    Bits bits;
    if constexpr (kCount == 8) {  // two in one instruction
#pragma unroll
      for (int i = 0; i < 4; ++i) bits.words.w[i] = T::put_two(v[2 * i], v[2 * i + 1]);
    } else {
#pragma unroll
      for (int i = 0; i < kCount; ++i) bits.elements[i] = T::put(v[i]);
    }
    return bits.words;
  }
};

struct Sum {
  static constexpr float kNone = 0;
  static __device__ __forceinline__ float of(float a, float b) { return a + b; }
};
struct Max {
  static constexpr float kNone = -3.4028234663852886e38f;
  static __device__ __forceinline__ float of(float a, float b) { return a > b ? a : b; }
};

struct TwoSums {
  float first, second;
};

template <class Op>
__device__ __forceinline__ float warp_reduce(float v) {
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) v = Op::of(v, shuffle_xor(v, lanes));
  return v;
}
// Over the block, the same in every thread, always in the same order. `scratch` holds 32 floats and may be used again
// at once.
template <class Op>
__device__ __forceinline__ float block_reduce(float v, float* scratch) {
  v = warp_reduce<Op>(v);
  const int warps = (int)blockDim.x / 32, lane = (int)threadIdx.x % 32;
  if (warps == 1) return v;
  if (lane == 0) scratch[threadIdx.x / 32] = v;
  __syncthreads();
  v = warp_reduce<Op>(lane < warps ? scratch[lane] : Op::kNone);
  __syncthreads();
  return v;
}
// Two sums of the block from those of its warps, with one barrier: the next call must be given other 64 floats, the one
// after it may have these again.
__device__ __forceinline__ TwoSums block_sums(TwoSums v, float* scratch) {
  const int warps = (int)blockDim.x / 32, lane = (int)threadIdx.x % 32;
  if (warps == 1) return v;
  if (lane == 0) {
    scratch[threadIdx.x / 32] = v.first;
    scratch[32 + threadIdx.x / 32] = v.second;
  }
  __syncthreads();
  v.first = warp_reduce<Sum>(lane < warps ? scratch[lane] : 0.0f);
  v.second = warp_reduce<Sum>(lane < warps ? scratch[32 + lane] : 0.0f);
  return v;
}

// A pack of the first half of a head, `half` packs long, and that `half` packs behind it, rotated in place: (a cos - b
// sin, b cos + a sin). The sines lie behind the head's cosines.
template <class T>
__device__ __forceinline__ void rotate_pack(Words* first, u32 half, const float* cosines) {
  const float* const sines = cosines + (u64)half * Pack<T>::kCount;
  Pack<T> a, b;
  a.unpack(load_words(first));
  b.unpack(load_words(first + half));
#pragma unroll
  for (int e = 0; e < Pack<T>::kCount; e += 4) {
    Pack<Fp32> c, s;
    c.unpack(load_words(cosines + e));
    s.unpack(load_words(sines + e));
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const float low = a.v[e + j], high = b.v[e + j];
      a.v[e + j] = low * c.v[j] - high * s.v[j];
      b.v[e + j] = high * c.v[j] + low * s.v[j];
    }
  }
  store_words(first, a.packed());
  store_words(first + half, b.packed());
}
