// What every kernel here is written with. It is put in front of a kernel's text before NVRTC compiles it; no header of
// CUDA is used. All inline PTX of the memory-bound kernels is in this file, so that a test can compile the same kernels
// for the CPU with its own version of it (tests/fakes/kernel_host.h).
typedef unsigned char u8;
typedef signed char i8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;
static_assert(sizeof(u64) == 8 && sizeof(i64) == 8, "64 bits");

#define KERNEL extern "C" __global__

struct alignas(16) Words {
  u32 w[4];
};

// ---- memory: 16 bytes at a time -------------------------------------------------------------------------------------
// Read only, and by this thread alone. Plain on purpose in whatever also writes a stream: past L1 (no_allocate), with
// plain stores, a sum of two arrays took 797 us on an H200 instead of 734, and with stores of .cs one or the other, by
// whether another GPU of the machine was starting (docs/adr/0011-measuring-kernels.md).
__device__ __forceinline__ Words load_stream(const void* at) {
  Words v;
  asm volatile("ld.global.nc.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.w[0]), "=r"(v.w[1]), "=r"(v.w[2]), "=r"(v.w[3])
               : "l"(at));
  return v;
}
// The same, kept out of L1: for kernels that write next to nothing.
__device__ __forceinline__ Words load_past_l1(const void* at) {
  Words v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.w[0]), "=r"(v.w[1]), "=r"(v.w[2]), "=r"(v.w[3])
               : "l"(at));
  return v;
}
// The same words for every row: read once and again, so the last to leave L1. Nothing may write them meanwhile.
__device__ __forceinline__ Words load_gain(const void* at) {
  Words v;
  asm("ld.global.nc.L1::evict_last.v4.u32 {%0,%1,%2,%3}, [%4];"
      : "=r"(v.w[0]), "=r"(v.w[1]), "=r"(v.w[2]), "=r"(v.w[3])
      : "l"(at));
  return v;
}
// May be written by the same kernel, so not through the read-only path.
__device__ __forceinline__ Words load_words(const void* at) {
  Words v;
  asm volatile("ld.global.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.w[0]), "=r"(v.w[1]), "=r"(v.w[2]), "=r"(v.w[3])
               : "l"(at)
               : "memory");
  return v;
}
__device__ __forceinline__ void store_words(void* at, Words v) {
  asm volatile("st.global.v4.u32 [%0], {%1,%2,%3,%4};" ::"l"(at), "r"(v.w[0]), "r"(v.w[1]), "r"(v.w[2]), "r"(v.w[3])
               : "memory");
}

// ---- numbers -------------------------------------------------------------------------------------------------------
__device__ __forceinline__ u32 bits_of(float v) { return __float_as_uint(v); }
__device__ __forceinline__ float float_of(u32 v) { return __uint_as_float(v); }
__device__ __forceinline__ u16 bf16_of(float v) {
  u16 r;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r) : "f"(v));
  return r;
}
__device__ __forceinline__ u16 fp16_of(float v) {
  u16 r;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r) : "f"(v));
  return r;
}
__device__ __forceinline__ float of_fp16(u16 v) {
  float r;
  asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(v));
  return r;
}
// Two e4m3, the first in the low byte.
#if __CUDA_ARCH__ >= 890
#define LLMPROF_FP8_PAIR 1
__device__ __forceinline__ u16 fp8_pair(float low, float high) {
  u16 r;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(r) : "f"(high), "f"(low));
  return r;
}
#endif
__device__ __forceinline__ float exp2_fast(float v) {
  float r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(v));
  return r;
}
// Never fused with what follows.
__device__ __forceinline__ float multiply_rounded(float a, float b) { return __fmul_rn(a, b); }
__device__ __forceinline__ float add_rounded(float a, float b) { return __fadd_rn(a, b); }
// The same words; the compiler does not know that.
__device__ __forceinline__ Words unrelated(Words v) {
  asm("" : "+r"(v.w[0]), "+r"(v.w[1]), "+r"(v.w[2]), "+r"(v.w[3]));
  return v;
}
__device__ __forceinline__ float reciprocal(float v) { return __frcp_rn(v); }
// For every element: one instruction, within 1 ulp, where the rounded one takes a dozen (half the time of GELU).
__device__ __forceinline__ float reciprocal_fast(float v) {
  float r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(v));
  return r;
}
__device__ __forceinline__ float inverse_root(float v) { return __frsqrt_rn(v); }
__device__ __forceinline__ float inverse_root_fast(float v) {
  float r;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(v));
  return r;
}

// ---- threads -------------------------------------------------------------------------------------------------------
__device__ __forceinline__ float shuffle_xor(float v, int lanes) { return __shfl_xor_sync(0xffffffffu, v, lanes); }
__device__ __forceinline__ u32 shuffle_xor(u32 v, int lanes) { return __shfl_xor_sync(0xffffffffu, v, lanes); }
__device__ __forceinline__ u64 read_clock() {
  u64 r;
  asm volatile("mov.u64 %0, %%clock64;" : "=l"(r)::"memory");
  return r;
}
__device__ __forceinline__ u64 read_global_timer() {
  u64 r;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(r)::"memory");
  return r;
}
__device__ __forceinline__ u32 read_sm() {
  u32 r;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(r));
  return r;
}

// ---- tile products of a warp, and copies that go on in the background -----------------------------------------------
// c[16][8] += a[16][16] b[16][8], in the register layout of mma.m16n8k16: lane l holds a[l/4 (+8)][2 (l%4) ..+1 (+8)],
// b[2 (l%4) ..+1 (+8)][l/4], c[l/4 (+8)][2 (l%4) ..+1].
__device__ __forceinline__ void mma_bf16(float* c, u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
__device__ __forceinline__ void mma_fp16(float* c, u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
// c[16][8] += a[16][8] b[8][8] of mma.m16n8k8: a[l/4 (+8)][2 (l%4) ..+1], b[2 (l%4) ..+1][l/4], c as above.
__device__ __forceinline__ void mma_short_bf16(float* c, u32 a0, u32 a1, u32 b) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a0), "r"(a1), "r"(b));
}
__device__ __forceinline__ void mma_short_fp16(float* c, u32 a0, u32 a1, u32 b) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a0), "r"(a1), "r"(b));
}
// Two elements in a word, the first in the low half.
__device__ __forceinline__ u32 two_bf16(float low, float high) {
  u32 r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}
__device__ __forceinline__ u32 two_fp16(float low, float high) {
  u32 r;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}
// The low halves of both words, or the high ones: {of a, of b}.
__device__ __forceinline__ u32 low_halves(u32 a, u32 b) { return __byte_perm(a, b, 0x5410); }
__device__ __forceinline__ u32 high_halves(u32 a, u32 b) { return __byte_perm(a, b, 0x7632); }

// A place in shared memory as a number of bytes, which offsets are added to.
__device__ __forceinline__ u32 shared_at(const Words* place) { return (u32)__cvta_generic_to_shared(place); }
// Four matrices of 8 x 8 elements of 16 bits from shared memory; lane l names row l % 8 of matrix l / 8. Of each, lane
// l gets elements 2 (l % 4) and the next of row l / 4; turned: of column l / 4.
__device__ __forceinline__ void load_matrices(u32 (&m)[4], u32 row_at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
               : "r"(row_at)
               : "memory");
}
__device__ __forceinline__ void load_matrices_turned(u32 (&m)[4], u32 row_at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
               : "r"(row_at)
               : "memory");
}

// 16 bytes from memory to shared memory; there after copies_arrived, for the thread that asked. Eight neighbouring
// lanes should ask for 128 neighbouring bytes: they are one request then.
__device__ __forceinline__ void copy_async(u32 to_at, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to_at), "l"(from) : "memory");
}
__device__ __forceinline__ void copy_async(Words* to, const void* from) { copy_async(shared_at(to), from); }
__device__ __forceinline__ void copies_close() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// What the lanes of a warp wrote before it, each of them sees after it.
__device__ __forceinline__ void sync_warp() { __syncwarp(); }
// All copies of this thread but those of the last kOpen closed groups.
template <int kOpen>
__device__ __forceinline__ void copies_arrived() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kOpen) : "memory");
}
// What another block wrote: past L1.
__device__ __forceinline__ Words load_fresh(const void* at) {
  Words v;
  asm volatile("ld.global.cg.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.w[0]), "=r"(v.w[1]), "=r"(v.w[2]), "=r"(v.w[3])
               : "l"(at)
               : "memory");
  return v;
}
__device__ __forceinline__ float load_fresh_number(const float* at) {
  float v;
  asm volatile("ld.global.cg.f32 %0, [%1];" : "=f"(v) : "l"(at) : "memory");
  return v;
}
#define DYNAMIC_SHARED(name) extern __shared__ Words name[]
