// The kernels of src/device/cuda/kernels on the CPU: the stand-in for prelude.cuh. Blocks run one after another, the
// threads of a block as coroutines that switch at barriers and shuffles, so a kernel's arithmetic, indexing and
// barriers are tested without a GPU. Not covered: the inline PTX of the real prelude, and races.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>

typedef unsigned char u8;
typedef signed char i8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

#define KERNEL static
#define __device__
#define __global__
#define __forceinline__ inline
#define __shared__ static  // one block at a time
#define __restrict__ __restrict

struct alignas(16) Words {
  u32 w[4];
};
struct Index3 {
  unsigned x = 0, y = 0, z = 0;
};

namespace emulated {
Index3& thread_index();
Index3& block_index();
Index3& block_size();
Index3& grid_size();
void block_barrier();
u32 shuffle_xor_bits(u32 value, int lanes);
u64 time_ns();
u64 cycles();
u32 sm();
// Runs `thread` for each thread of each block.
void run(Index3 grid, Index3 block, const std::function<void()>& thread);
}  // namespace emulated

#define threadIdx (emulated::thread_index())
#define blockIdx (emulated::block_index())
#define blockDim (emulated::block_size())
#define gridDim (emulated::grid_size())
inline void __syncthreads() { emulated::block_barrier(); }
inline void __threadfence() {}
inline u32 atomicAdd(u32* at, u32 value) {
  const u32 before = *at;
  *at += value;
  return before;
}

inline Words load_stream(const void* at) {
  Words v;
  std::memcpy(&v, at, 16);
  return v;
}
inline Words load_words(const void* at) { return load_stream(at); }
inline void store_words(void* at, Words v) { std::memcpy(at, &v, 16); }
inline void store_stream(void* at, Words v) { std::memcpy(at, &v, 16); }

inline u32 bits_of(float v) {
  u32 r;
  std::memcpy(&r, &v, 4);
  return r;
}
inline float float_of(u32 v) {
  float r;
  std::memcpy(&r, &v, 4);
  return r;
}
u16 bf16_of(float v);
u16 fp16_of(float v);
float of_fp16(u16 v);
inline float exp2_fast(float v) { return std::exp2(v); }
inline float reciprocal(float v) { return 1.0f / v; }
inline float inverse_root(float v) { return 1.0f / std::sqrt(v); }
inline float shuffle_xor(float v, int lanes) { return float_of(emulated::shuffle_xor_bits(bits_of(v), lanes)); }
inline u32 shuffle_xor(u32 v, int lanes) { return emulated::shuffle_xor_bits(v, lanes); }
inline u64 read_clock() { return emulated::cycles(); }
inline u64 read_global_timer() { return emulated::time_ns(); }
inline u32 read_sm() { return emulated::sm(); }
