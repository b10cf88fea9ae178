#include "kernels/cpu/memory_kernels.h"

#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace llmprof::kernels::cpu {
namespace {

uint32_t word_at(const float* a, size_t i) {
  uint32_t word = 0;
  std::memcpy(&word, a + i, 4);
  return word;
}

uint32_t read_plain(const float* a, size_t count) {
  uint32_t sum = 0;
  for (size_t i = 0; i < count; ++i) sum += word_at(a, i);
  return sum;
}
void write_plain(float* out, float value, size_t count) {
  for (size_t i = 0; i < count; ++i) out[i] = value;
}
void copy_library(float* out, const float* a, size_t count) { std::memcpy(out, a, count * 4); }
void triad_plain(float* __restrict__ out, const float* __restrict__ a, const float* __restrict__ b, float value,
                 size_t count) {
  for (size_t i = 0; i < count; ++i) out[i] = a[i] + value * b[i];
}

#if defined(__x86_64__)

// The three loops that store, for vectors of one width: kStep elements a turn, the rest by the plain loop. Streaming
// stores are weakly ordered, hence the fence.
#define LLMPROF_STORE_LOOPS(SUFFIX, TARGET, VECTOR, WIDTH, SET, LOAD, STORE, FMA)                              \
  __attribute__((target(TARGET))) void write_##SUFFIX(float* out, float value, size_t count) {                 \
    const VECTOR all = SET(value);                                                                             \
    const size_t whole = count / (4 * (WIDTH)) * (4 * (WIDTH));                                                \
    for (size_t i = 0; i < whole; i += 4 * (WIDTH)) {                                                          \
      STORE(out + i, all);                                                                                     \
      STORE(out + i + (WIDTH), all);                                                                           \
      STORE(out + i + 2 * (WIDTH), all);                                                                       \
      STORE(out + i + 3 * (WIDTH), all);                                                                       \
    }                                                                                                          \
    _mm_sfence();                                                                                              \
    write_plain(out + whole, value, count - whole);                                                            \
  }                                                                                                            \
  __attribute__((target(TARGET))) void copy_##SUFFIX(float* out, const float* a, size_t count) {               \
    const size_t whole = count / (4 * (WIDTH)) * (4 * (WIDTH));                                                \
    for (size_t i = 0; i < whole; i += 4 * (WIDTH)) {                                                          \
      const VECTOR v0 = LOAD(a + i), v1 = LOAD(a + i + (WIDTH));                                               \
      const VECTOR v2 = LOAD(a + i + 2 * (WIDTH)), v3 = LOAD(a + i + 3 * (WIDTH));                             \
      STORE(out + i, v0);                                                                                      \
      STORE(out + i + (WIDTH), v1);                                                                            \
      STORE(out + i + 2 * (WIDTH), v2);                                                                        \
      STORE(out + i + 3 * (WIDTH), v3);                                                                        \
    }                                                                                                          \
    _mm_sfence();                                                                                              \
    copy_library(out + whole, a + whole, count - whole);                                                       \
  }                                                                                                            \
  __attribute__((target(TARGET))) void triad_##SUFFIX(float* out, const float* a, const float* b, float value, \
                                                      size_t count) {                                          \
    const VECTOR all = SET(value);                                                                             \
    const size_t whole = count / (2 * (WIDTH)) * (2 * (WIDTH));                                                \
    for (size_t i = 0; i < whole; i += 2 * (WIDTH)) {                                                          \
      const VECTOR v0 = FMA(all, LOAD(b + i), LOAD(a + i));                                                    \
      const VECTOR v1 = FMA(all, LOAD(b + i + (WIDTH)), LOAD(a + i + (WIDTH)));                                \
      STORE(out + i, v0);                                                                                      \
      STORE(out + i + (WIDTH), v1);                                                                            \
    }                                                                                                          \
    _mm_sfence();                                                                                              \
    triad_plain(out + whole, a + whole, b + whole, value, count - whole);                                      \
  }

LLMPROF_STORE_LOOPS(avx2, "avx2,fma", __m256, 8, _mm256_set1_ps, _mm256_load_ps, _mm256_store_ps, _mm256_fmadd_ps)
LLMPROF_STORE_LOOPS(avx2_stream, "avx2,fma", __m256, 8, _mm256_set1_ps, _mm256_load_ps, _mm256_stream_ps,
                    _mm256_fmadd_ps)
LLMPROF_STORE_LOOPS(avx512, "avx512f", __m512, 16, _mm512_set1_ps, _mm512_load_ps, _mm512_store_ps, _mm512_fmadd_ps)
LLMPROF_STORE_LOOPS(avx512_stream, "avx512f", __m512, 16, _mm512_set1_ps, _mm512_load_ps, _mm512_stream_ps,
                    _mm512_fmadd_ps)
#undef LLMPROF_STORE_LOOPS

__attribute__((target("avx2"))) uint32_t read_avx2(const float* a, size_t count) {
  __m256i sums[4] = {_mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256()};
  const size_t whole = count / 32 * 32;
  for (size_t i = 0; i < whole; i += 32)
    for (size_t part = 0; part < 4; ++part)
      sums[part] = _mm256_add_epi32(sums[part], _mm256_load_si256(reinterpret_cast<const __m256i*>(a + i + 8 * part)));
  const __m256i all = _mm256_add_epi32(_mm256_add_epi32(sums[0], sums[1]), _mm256_add_epi32(sums[2], sums[3]));
  uint32_t lanes[8];
  std::memcpy(lanes, &all, sizeof lanes);
  uint32_t sum = read_plain(a + whole, count - whole);
  for (const uint32_t lane : lanes) sum += lane;
  return sum;
}

__attribute__((target("avx512f"))) uint32_t read_avx512(const float* a, size_t count) {
  __m512i sums[4] = {_mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512()};
  const size_t whole = count / 64 * 64;
  for (size_t i = 0; i < whole; i += 64)
    for (size_t part = 0; part < 4; ++part)
      sums[part] = _mm512_add_epi32(sums[part], _mm512_load_si512(a + i + 16 * part));
  const __m512i all = _mm512_add_epi32(_mm512_add_epi32(sums[0], sums[1]), _mm512_add_epi32(sums[2], sums[3]));
  uint32_t lanes[16];
  std::memcpy(lanes, &all, sizeof lanes);
  uint32_t sum = read_plain(a + whole, count - whole);
  for (const uint32_t lane : lanes) sum += lane;
  return sum;
}

// Four places of the share at once: the prefetchers of a core follow several streams, and of one they run out.
__attribute__((target("avx512f"))) uint32_t read_avx512_streams(const float* a, size_t count) {
  const size_t quarter = count / 4 / 64 * 64;
  __m512i sums[4] = {_mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512()};
  for (size_t i = 0; i < quarter; i += 64)
    for (size_t place = 0; place < 4; ++place)
      for (size_t part = 0; part < 4; ++part)
        sums[part] = _mm512_add_epi32(sums[part], _mm512_load_si512(a + place * quarter + i + 16 * part));
  const __m512i all = _mm512_add_epi32(_mm512_add_epi32(sums[0], sums[1]), _mm512_add_epi32(sums[2], sums[3]));
  uint32_t lanes[16];
  std::memcpy(lanes, &all, sizeof lanes);
  uint32_t sum = read_avx512(a + 4 * quarter, count - 4 * quarter);
  for (const uint32_t lane : lanes) sum += lane;
  return sum;
}

#endif

}  // namespace

std::vector<MemoryKernels> memory_kernels(const device::cpu::Instructions& instructions) {
  std::vector<MemoryKernels> kernels;
#if defined(__x86_64__)
  if (instructions.avx512) {
    kernels.push_back(
        {"own AVX-512 streaming", read_avx512_streams, write_avx512_stream, copy_avx512_stream, triad_avx512_stream});
    kernels.push_back({"own AVX-512", read_avx512, write_avx512, copy_avx512, triad_avx512});
  }
  if (instructions.avx2) {
    kernels.push_back({"own AVX2 streaming", nullptr, write_avx2_stream, copy_avx2_stream, triad_avx2_stream});
    kernels.push_back({"own AVX2", read_avx2, write_avx2, copy_avx2, triad_avx2});
  }
#else
  static_cast<void>(instructions);
#endif
  kernels.push_back({"own plain", read_plain, write_plain, nullptr, triad_plain});
  kernels.push_back({"C library", nullptr, nullptr, copy_library, nullptr, true});
  return kernels;
}

}  // namespace llmprof::kernels::cpu
