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
#define __launch_bounds__(...)

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
void warp_barrier();
u32 shuffle_xor_bits(u32 value, int lanes);
void mma(float* c, const u32 (&a)[4], const u32 (&b)[2], float (*number)(u16));
// Lane l gets what the row of lane 8 j + l / 4 holds for it, of each j; turned: of rows 2 (l % 4) and the next.
void matrices(u32 (&m)[4], const Words* row, bool turned);
Words* dynamic_shared();  // as large as a block may have
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
inline void sync_warp() { emulated::warp_barrier(); }
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
inline Words load_past_l1(const void* at) { return load_stream(at); }
inline Words load_words(const void* at) { return load_stream(at); }
inline Words load_gain(const void* at) { return load_stream(at); }
inline void store_words(void* at, Words v) { std::memcpy(at, &v, 16); }

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
inline float multiply_rounded(float a, float b) { return a * b; }
inline float add_rounded(float a, float b) { return a + b; }
inline Words unrelated(Words v) { return v; }
inline float reciprocal(float v) { return 1.0f / v; }
inline float reciprocal_fast(float v) { return 1.0f / v; }
inline float inverse_root_fast(float v) { return 1.0f / std::sqrt(v); }
inline float inverse_root(float v) { return 1.0f / std::sqrt(v); }
inline float shuffle_xor(float v, int lanes) { return float_of(emulated::shuffle_xor_bits(bits_of(v), lanes)); }
inline u32 shuffle_xor(u32 v, int lanes) { return emulated::shuffle_xor_bits(v, lanes); }
inline u64 read_clock() { return emulated::cycles(); }
inline u64 read_global_timer() { return emulated::time_ns(); }
inline u32 read_sm() { return emulated::sm(); }

float of_bf16(u16 v);
inline void mma_bf16(float* c, u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
  emulated::mma(c, {a0, a1, a2, a3}, {b0, b1}, of_bf16);
}
inline void mma_fp16(float* c, u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
  emulated::mma(c, {a0, a1, a2, a3}, {b0, b1}, of_fp16);
}
inline void mma_short_bf16(float* c, u32 a0, u32 a1, u32 b) { emulated::mma(c, {a0, a1, 0, 0}, {b, 0}, of_bf16); }
inline void mma_short_fp16(float* c, u32 a0, u32 a1, u32 b) { emulated::mma(c, {a0, a1, 0, 0}, {b, 0}, of_fp16); }
inline u32 two_bf16(float low, float high) { return bf16_of(low) | static_cast<u32>(bf16_of(high)) << 16; }
inline u32 two_fp16(float low, float high) { return fp16_of(low) | static_cast<u32>(fp16_of(high)) << 16; }
inline u32 low_halves(u32 a, u32 b) { return (a & 0xffffu) | b << 16; }
inline u32 high_halves(u32 a, u32 b) { return a >> 16 | (b & 0xffff0000u); }
inline u32 shared_at(const Words* place) { return static_cast<u32>(16 * (place - emulated::dynamic_shared())); }
inline Words* of_shared(u32 at) { return emulated::dynamic_shared() + at / 16; }
inline void load_matrices(u32 (&m)[4], u32 row_at) { emulated::matrices(m, of_shared(row_at), false); }
inline void load_matrices_turned(u32 (&m)[4], u32 row_at) { emulated::matrices(m, of_shared(row_at), true); }
inline void copy_async(u32 to_at, const void* from) { *of_shared(to_at) = load_stream(from); }
inline void copy_async(Words* to, const void* from) { *to = load_stream(from); }
inline void copies_close() {}
template <int kOpen>
inline void copies_arrived() {}
inline Words load_fresh(const void* at) { return load_stream(at); }
inline float load_fresh_number(const float* at) { return *at; }
#define DYNAMIC_SHARED(name) Words* const name = emulated::dynamic_shared()
