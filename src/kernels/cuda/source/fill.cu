// Numbers of device/fill.h. Element i of the whole buffer depends on (seed, i) alone.

__device__ __forceinline__ u64 mix(u64 z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}
__device__ __forceinline__ u64 element_hash(u64 mixed_seed, u64 index) {
  return mix(mixed_seed + (index + 1) * 0x9e3779b97f4a7c15ull);
}
__device__ __forceinline__ float uniform(u64 hash) {
  return (float)((int)(hash >> 40) - (1 << 23)) * 1.1920928955078125e-7f;
}
__device__ __forceinline__ double uniform_double(u64 hash) {
  return (double)((i64)(hash >> 11) - (1ll << 52)) * 2.220446049250313e-16;
}

#define FILL(name, Stored, value)                                                    \
  KERNEL void name(Stored* out, u64 count, u64 mixed_seed, u64 below) {              \
    const u64 step = (u64)gridDim.x * blockDim.x;                                    \
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) { \
      const u64 hash = element_hash(mixed_seed, i);                                  \
      out[i] = (Stored)(value);                                                      \
    }                                                                                \
  }
FILL(fill_fp64, double, uniform_double(hash))
FILL(fill_fp32, float, uniform(hash))
FILL(fill_bf16, u16, bf16_of(uniform(hash)))
FILL(fill_fp16, u16, fp16_of(uniform(hash)))
FILL(fill_fp8, u8, fp8_of(448.0f * uniform(hash)))
FILL(fill_int8, u8, hash >> 56)
FILL(fill_index, int, ((hash >> 32) * below) >> 32)

// offset + scale * u, both rounded, as a CPU without fused multiply-adds has it: weights of the reference workload.
#define FILL_SCALED(name, Stored, put)                                                                        \
  KERNEL void name(Stored* out, u64 count, u64 mixed_seed, float scale, float offset) {                       \
    const u64 step = (u64)gridDim.x * blockDim.x;                                                             \
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {                          \
      const float value = add_rounded(offset, multiply_rounded(scale, uniform(element_hash(mixed_seed, i)))); \
      out[i] = put(value);                                                                                    \
    }                                                                                                         \
  }
FILL_SCALED(fill_scaled_fp32, float, )
FILL_SCALED(fill_scaled_bf16, u16, bf16_of)
