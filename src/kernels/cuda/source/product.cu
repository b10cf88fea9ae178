// What follows a product of 8-bit numbers where the library does not do it: sums times a scale of their row and one of
// their column, to bf16.

// sums: [rows, columns], `packs` times eight of them a row; count = rows * packs.
template <class Sum>
__device__ __forceinline__ void scale_sums(const Words* sums, const float* row_scales, const Words* column_scales,
                                           Words* out, u64 count, u32 packs) {
  const u64 step = (u64)gridDim.x * blockDim.x;
  for (u64 p = (u64)blockIdx.x * blockDim.x + threadIdx.x; p < count; p += step) {
    const u64 row = p / packs;
    const u64 column = (p - row * packs) * 2;
    const float scale = row_scales[row];
    Words packed;
    for (int half = 0; half < 2; ++half) {
      const Words four = load_stream(sums + p * 2 + half), scales = load_words(column_scales + column + half);
      for (int pair = 0; pair < 2; ++pair)
        packed.w[half * 2 + pair] =
            two_bf16(Sum::of(four.w[pair * 2]) * (scale * float_of(scales.w[pair * 2])),
                     Sum::of(four.w[pair * 2 + 1]) * (scale * float_of(scales.w[pair * 2 + 1])));
    }
    store_words(out + p, packed);
  }
}
struct SumInt32 {
  static __device__ __forceinline__ float of(u32 word) { return (float)(int)word; }
};
struct SumFp32 {
  static __device__ __forceinline__ float of(u32 word) { return float_of(word); }
};

KERNEL void scale_sums_int32(const Words* sums, const float* row_scales, const Words* column_scales, Words* out,
                             u64 count, u32 packs) {
  scale_sums<SumInt32>(sums, row_scales, column_scales, out, count, packs);
}
KERNEL void scale_sums_fp32(const Words* sums, const float* row_scales, const Words* column_scales, Words* out,
                            u64 count, u32 packs) {
  scale_sums<SumFp32>(sums, row_scales, column_scales, out, count, packs);
}
