// Includes the file that LLMPROF_BODIES names once for each width of vectors: in the namespaces avx512 and avx2 (x86-64
// only) and plain, each compiled for its own target, so that one binary has all of them and chooses at run time.
// Vectors are those of GCC and clang: sixteen lanes become one, two or four registers, as the target has them. They are
// never passed by value, which would depend on the target. LLMPROF_VECTOR_BITS is 512, 256 or 128 (no target of its
// own) within them. To be included within a namespace, after <cstdint>.

constexpr int kLanes = 16;
using Floats = float __attribute__((vector_size(64)));
using Quads = float __attribute__((vector_size(16)));
using Words = uint32_t __attribute__((vector_size(64)));
using Halves = uint16_t __attribute__((vector_size(32)));
#define LLMPROF_INLINE [[gnu::always_inline]] inline
// The body of each_vector.
#define LLMPROF_EACH [&](int64_t column, size_t count, [[maybe_unused]] int slot) __attribute__((always_inline))

#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,fma")
#endif
#define LLMPROF_VECTOR_BITS 512
namespace avx512 {
#include LLMPROF_BODIES
}
#undef LLMPROF_VECTOR_BITS
#if defined(__clang__)
#pragma clang attribute pop
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#endif
#define LLMPROF_VECTOR_BITS 256
namespace avx2 {
#include LLMPROF_BODIES
}
#undef LLMPROF_VECTOR_BITS
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif
#define LLMPROF_VECTOR_BITS 128
namespace plain {
#include LLMPROF_BODIES
}
#undef LLMPROF_VECTOR_BITS
#undef LLMPROF_BODIES
#undef LLMPROF_EACH
#undef LLMPROF_INLINE
