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

// ---- 9.0: products of four warps together, which go on in the background -------------------------------------------
// c[64][N] of a group of four warps, in the layout of mma: warp w holds rows 16 w on. Shared memory is told of by
// descriptors; what threads wrote there they must share first, and all must have shared it. Between group_open and
// group_wait nothing else may touch the numbers.
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define LLMPROF_GROUPS 1
__device__ __forceinline__ void share_with_units() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
__device__ __forceinline__ void group_open() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void group_close() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Until all but the last kOpen closed ones are done, whose numbers are c.
template <int kOpen, int kCount>
__device__ __forceinline__ void group_wait(float (&c)[kCount]) {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kOpen) : "memory");
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(c[i])::"memory");  // what comes from c comes after
}
#define GROUP_4(kind, i) kind(c[i]), kind(c[i + 1]), kind(c[i + 2]), kind(c[i + 3])
#define GROUP_16(kind, i) GROUP_4(kind, i), GROUP_4(kind, i + 4), GROUP_4(kind, i + 8), GROUP_4(kind, i + 12)
#define GROUP_32(kind) GROUP_16(kind, 0), GROUP_16(kind, 16)
#define GROUP_64(kind) GROUP_32(kind), GROUP_16(kind, 32), GROUP_16(kind, 48)
#define GROUP_128(kind) GROUP_64(kind), GROUP_16(kind, 64), GROUP_16(kind, 80), GROUP_16(kind, 96), GROUP_16(kind, 112)
#define GROUP_NAMES_32                                                     \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define GROUP_NAMES_64                                                               \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "           \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define GROUP_NAMES_128                                                                          \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                       \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "             \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "             \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "             \
  "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "             \
  "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "             \
  "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
  "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
__device__ __forceinline__ void group_bf16_shared(float (&c)[32], u64 a, u64 b, bool adds) {
  asm volatile(
      "{ .reg .pred adds; setp.ne.b32 adds, %34, 0; wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
      "{" GROUP_NAMES_32 "}, %32, %33, adds, 1, 1, 0, 0; }"
      : GROUP_32("+f")
      : "l"(a), "l"(b), "r"((int)adds));
}
__device__ __forceinline__ void group_bf16_shared(float (&c)[64], u64 a, u64 b, bool adds) {
  asm volatile(
      "{ .reg .pred adds; setp.ne.b32 adds, %66, 0; wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
      "{" GROUP_NAMES_64 "}, %64, %65, adds, 1, 1, 0, 0; }"
      : GROUP_64("+f")
      : "l"(a), "l"(b), "r"((int)adds));
}
__device__ __forceinline__ void group_bf16_turned(float (&c)[32], const u32 (&a)[4], u64 b) {
  asm volatile(
      "{ .reg .pred adds; setp.ne.b32 adds, %37, 0; wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
      "{" GROUP_NAMES_32 "}, {%32, %33, %34, %35}, %36, adds, 1, 1, 1; }"
      : GROUP_32("+f")
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(1));
}
__device__ __forceinline__ void group_bf16_turned(float (&c)[64], const u32 (&a)[4], u64 b) {
  asm volatile(
      "{ .reg .pred adds; setp.ne.b32 adds, %69, 0; wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
      "{" GROUP_NAMES_64 "}, {%64, %65, %66, %67}, %68, adds, 1, 1, 1; }"
      : GROUP_64("+f")
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(1));
}
__device__ __forceinline__ void group_bf16_turned(float (&c)[128], const u32 (&a)[4], u64 b) {
  asm volatile(
      "{ .reg .pred adds; setp.ne.b32 adds, %133, 0; wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 "
      "{" GROUP_NAMES_128 "}, {%128, %129, %130, %131}, %132, adds, 1, 1, 1; }"
      : GROUP_128("+f")
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(1));
}
__device__ __forceinline__ void group_fp16_shared(float (&c)[32], u64 a, u64 b, bool adds) {
  asm volatile(
      "{ .reg .pred adds; setp.ne.b32 adds, %34, 0; wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {" GROUP_NAMES_32
      "}, %32, %33, adds, 1, 1, 0, 0; }"
      : GROUP_32("+f")
      : "l"(a), "l"(b), "r"((int)adds));
}
__device__ __forceinline__ void group_fp16_shared(float (&c)[64], u64 a, u64 b, bool adds) {
  asm volatile(
      "{ .reg .pred adds; setp.ne.b32 adds, %66, 0; wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 "
      "{" GROUP_NAMES_64 "}, %64, %65, adds, 1, 1, 0, 0; }"
      : GROUP_64("+f")
      : "l"(a), "l"(b), "r"((int)adds));
}
__device__ __forceinline__ void group_fp16_turned(float (&c)[32], const u32 (&a)[4], u64 b) {
  asm volatile(
      "{ .reg .pred adds; setp.ne.b32 adds, %37, 0; wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {" GROUP_NAMES_32
      "}, {%32, %33, %34, %35}, %36, adds, 1, 1, 1; }"
      : GROUP_32("+f")
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(1));
}
__device__ __forceinline__ void group_fp16_turned(float (&c)[64], const u32 (&a)[4], u64 b) {
  asm volatile(
      "{ .reg .pred adds; setp.ne.b32 adds, %69, 0; wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 "
      "{" GROUP_NAMES_64 "}, {%64, %65, %66, %67}, %68, adds, 1, 1, 1; }"
      : GROUP_64("+f")
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(1));
}
__device__ __forceinline__ void group_fp16_turned(float (&c)[128], const u32 (&a)[4], u64 b) {
  asm volatile(
      "{ .reg .pred adds; setp.ne.b32 adds, %133, 0; wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 "
      "{" GROUP_NAMES_128 "}, {%128, %129, %130, %131}, %132, adds, 1, 1, 1; }"
      : GROUP_128("+f")
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(1));
}
#endif

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
