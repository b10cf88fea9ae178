// Multiply-adds whose operands never leave the registers: what the units themselves can do. Inputs are random bits in
// the type's range, so that the power is that of work; each warp keeps CHAINS independent sums, more than the latency
// needs. The matrix units of 9.0 reach their rate only by wgmma, which four warps issue together and whose right
// operand lies in shared memory: registers_of_groups.
//
// Macros: KIND, one of the functions below, e.g. KIND=Bf16Mma. The sums grow by the same product each time, so twice
// the iterations give twice the sum: that is what the check looks at.

__device__ __forceinline__ u32 random_bits(u32 at) {
  at = (at ^ (at >> 16)) * 0x7feb352du;
  at = (at ^ (at >> 15)) * 0x846ca68bu;
  return at ^ (at >> 16);
}
// In [-1, 1).
__device__ __forceinline__ float random_number(u32 at) {
  return (float)((int)(random_bits(at) >> 8) - (1 << 23)) * 1.1920928955078125e-7f;
}
__device__ __forceinline__ u32 two(u16 low, u16 high) { return (u32)low | ((u32)high << 16); }

// A tile product of a warp: A in a[], B in b[], sums in c[]; FLOPs of one `step`.
struct Bf16Mma {
  static constexpr int kA = 4, kB = 2, kC = 4, kChains = 8;
  static constexpr i64 kFlops = 2 * 16 * 8 * 16;
  typedef float Sum;
  static __device__ __forceinline__ u32 word(u32 at) {
    return two(bf16_of(random_number(2 * at)), bf16_of(random_number(2 * at + 1)));
  }
  static __device__ __forceinline__ void step(float* c, const u32* a, const u32* b) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
};
struct Fp16Mma {
  static constexpr int kA = 4, kB = 2, kC = 4, kChains = 8;
  static constexpr i64 kFlops = 2 * 16 * 8 * 16;
  typedef float Sum;
  static __device__ __forceinline__ u32 word(u32 at) {
    return two(fp16_of(random_number(2 * at)), fp16_of(random_number(2 * at + 1)));
  }
  static __device__ __forceinline__ void step(float* c, const u32* a, const u32* b) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
};
struct Tf32Mma {
  static constexpr int kA = 4, kB = 2, kC = 4, kChains = 8;
  static constexpr i64 kFlops = 2 * 16 * 8 * 8;
  typedef float Sum;
  static __device__ __forceinline__ u32 word(u32 at) { return bits_of(random_number(at)) & 0xffffe000u; }
  static __device__ __forceinline__ void step(float* c, const u32* a, const u32* b) {
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
};
#if __CUDA_ARCH__ >= 890
struct Fp8Mma {
  static constexpr int kA = 4, kB = 2, kC = 4, kChains = 8;
  static constexpr i64 kFlops = 2 * 16 * 8 * 32;
  typedef float Sum;
  static __device__ __forceinline__ u32 word(u32 at) {
    u32 bytes = 0;
    for (u32 i = 0; i < 4; ++i) bytes |= (u32)fp8_of(random_number(4 * at + i)) << (8 * i);
    return bytes;
  }
  static __device__ __forceinline__ void step(float* c, const u32* a, const u32* b) {
    asm volatile(
        "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
};
#endif
struct Int8Mma {
  static constexpr int kA = 4, kB = 2, kC = 4, kChains = 8;
  static constexpr i64 kFlops = 2 * 16 * 8 * 32;
  typedef int Sum;
  static __device__ __forceinline__ u32 word(u32 at) { return random_bits(at); }
  static __device__ __forceinline__ void step(int* c, const u32* a, const u32* b) {
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
};
// Double precision has matrix units from 8.0 on; where a chip has few of them the ordinary units are as fast.
struct Fp64Mma {
  static constexpr int kA = 2, kB = 2, kC = 2, kChains = 8;
  static constexpr i64 kFlops = 2 * 8 * 8 * 4;
  typedef double Sum;
  static __device__ __forceinline__ u32 word(u32 at) {
    // Alternating halves of a double in [1, 2).
    return at & 1u ? (random_bits(at) & 0xfffffu) | 0x3ff00000u : random_bits(at);
  }
  static __device__ __forceinline__ double whole(const u32* halves) {
    return __longlong_as_double((i64)(((u64)halves[1] << 32) | halves[0]));
  }
  static __device__ __forceinline__ void step(double* c, const u32* a, const u32* b) {
    const double x = whole(a), y = whole(b);
    asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0,%1}, {%2}, {%3}, {%0,%1};"
                 : "+d"(c[0]), "+d"(c[1])
                 : "d"(x), "d"(y));
  }
};
// The ordinary units: 32 lanes, one multiply-add each per sum.
struct Fp32Fma {
  static constexpr int kA = 1, kB = 1, kC = 4, kChains = 4;
  static constexpr i64 kFlops = 2 * 32 * 4;
  typedef float Sum;
  static __device__ __forceinline__ u32 word(u32 at) { return bits_of(random_number(at)); }
  static __device__ __forceinline__ void step(float* c, const u32* a, const u32* b) {
    const float x = float_of(a[0]), y = float_of(b[0]);
#pragma unroll
    for (int i = 0; i < 4; ++i) asm volatile("fma.rn.f32 %0, %1, %2, %0;" : "+f"(c[i]) : "f"(x), "f"(y));
  }
};

#ifdef KIND
// out[thread]: the sum of all the thread's sums.
KERNEL void registers(u32 iterations, float* out) {
  typedef KIND Kind;
  const u32 thread = blockIdx.x * blockDim.x + threadIdx.x;
  // Alternating operands would be no more work for the unit; one pair per chain keeps within the registers.
  u32 a[Kind::kA], b[Kind::kChains][Kind::kB];
  typename Kind::Sum c[Kind::kChains][Kind::kC];
#pragma unroll
  for (int i = 0; i < Kind::kA; ++i) a[i] = Kind::word(thread * 64 + (u32)i);
#pragma unroll
  for (int chain = 0; chain < Kind::kChains; ++chain) {
#pragma unroll
    for (int i = 0; i < Kind::kB; ++i) b[chain][i] = Kind::word(thread * 64 + 8 + (u32)(chain * Kind::kB + i));
#pragma unroll
    for (int i = 0; i < Kind::kC; ++i) c[chain][i] = 0;
  }
#pragma unroll 4
  for (u32 i = 0; i < iterations; ++i) {
#pragma unroll
    for (int chain = 0; chain < Kind::kChains; ++chain) Kind::step(c[chain], a, b[chain]);
  }
  float all = 0;
#pragma unroll
  for (int chain = 0; chain < Kind::kChains; ++chain) {
#pragma unroll
    for (int i = 0; i < Kind::kC; ++i) all += (float)c[chain][i];
  }
  out[thread] = all;
}
#endif

#if defined(GROUP) && defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define GROUP_4(kind, i) kind(c[i]), kind(c[i + 1]), kind(c[i + 2]), kind(c[i + 3])
#define GROUP_16(kind, i) GROUP_4(kind, i), GROUP_4(kind, i + 4), GROUP_4(kind, i + 8), GROUP_4(kind, i + 12)
#define GROUP_32(kind) GROUP_16(kind, 0), GROUP_16(kind, 16)
#define GROUP_64(kind) GROUP_32(kind), GROUP_16(kind, 32), GROUP_16(kind, 48)
#define GROUP_128(kind) GROUP_64(kind), GROUP_16(kind, 64), GROUP_16(kind, 80), GROUP_16(kind, 96), GROUP_16(kind, 112)
#define GROUP_NAMES_128                                                                          \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                       \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "             \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "             \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "             \
  "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "             \
  "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "             \
  "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
  "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
// D[64][256] += A[64][K] B[K][256] of a group of four warps: A in four registers per thread, B where `b` describes it.
// 32 bytes of K in every type.
#define GROUP_STEP(what, factors, kind)                                                                                \
  asm volatile("{ .reg .pred adds; setp.ne.b32 adds, %133, 0; wgmma.mma_async.sync.aligned." what " {" GROUP_NAMES_128 \
               "}, {%128, %129, %130, %131}, %132, adds" factors "; }"                                                 \
               : GROUP_128(kind)                                                                                       \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(1))

struct Bf16Group : Bf16Mma {
  static __device__ __forceinline__ void step(float* c, const u32* a, u64 b) {
    GROUP_STEP("m64n256k16.f32.bf16.bf16", ", 1, 1, 0", "+f");
  }
};
struct Fp16Group : Fp16Mma {
  static __device__ __forceinline__ void step(float* c, const u32* a, u64 b) {
    GROUP_STEP("m64n256k16.f32.f16.f16", ", 1, 1, 0", "+f");
  }
};
struct Tf32Group : Tf32Mma {
  static __device__ __forceinline__ void step(float* c, const u32* a, u64 b) {
    GROUP_STEP("m64n256k8.f32.tf32.tf32", ", 1, 1", "+f");
  }
};
struct Fp8Group : Fp8Mma {
  static __device__ __forceinline__ void step(float* c, const u32* a, u64 b) {
    GROUP_STEP("m64n256k32.f32.e4m3.e4m3", ", 1, 1", "+f");
  }
};
struct Int8Group : Int8Mma {
  static __device__ __forceinline__ void step(int* c, const u32* a, u64 b) {
    GROUP_STEP("m64n256k32.s32.s8.s8", "", "+r");
  }
};

// out[thread]: the sum of all the thread's sums. Macro: GROUP, one of the above. Blocks of 256.
KERNEL void __launch_bounds__(256) registers_of_groups(u32 iterations, float* out) {
  typedef GROUP Group;
  constexpr u32 kTiles = 4, kTileWords = 256 * 32 / 16;  // B's: 256 columns of 32 bytes
  __shared__ alignas(128) Words tiles[kTiles * kTileWords];
  const u32 thread = blockIdx.x * blockDim.x + threadIdx.x;
  for (u32 i = threadIdx.x; i < kTiles * kTileWords; i += blockDim.x) {
    Words words;
    for (u32 w = 0; w < 4; ++w) words.w[w] = Group::word((blockIdx.x * kTiles * kTileWords + i) * 4 + w + (1u << 24));
    tiles[i] = words;
  }
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  u32 a[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) a[i] = Group::word(thread * 64 + (u32)i);
  typename Group::Sum c[128];
#pragma unroll
  for (int i = 0; i < 128; ++i) c[i] = 0;
  // Pieces of 8 columns by 16 bytes follow one another, the two of 32 bytes first: 128 bytes to the next along K, 256
  // along the columns; all in units of 16 bytes.
  const u64 described = (shared_at(tiles) >> 4) | (u64)(128 >> 4) << 16 | (u64)(256 >> 4) << 32;
  for (u32 i = 0; i < iterations; ++i) {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
    for (u32 tile = 0; tile < kTiles; ++tile) Group::step(c, a, described + tile * kTileWords);
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  }
  float all = 0;
#pragma unroll
  for (int i = 0; i < 128; ++i) all += (float)c[i];
  out[thread] = all;
}
#endif
