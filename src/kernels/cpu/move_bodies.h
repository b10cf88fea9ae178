// The kernels of move_kernels.cc, included by vector_targets.h once for each width of vectors.

#include "kernels/cpu/vector_bodies.h"

using Codes = uint8_t __attribute__((vector_size(16)));

// Sixteen bytes as words and back, which GCC 12 does by way of memory.
LLMPROF_INLINE void widen_codes(const uint8_t* from, size_t count, Words& words) {
  alignas(16) uint8_t part[kLanes] = {};
  if (count != kLanes) {
    std::memcpy(part, from, count);
    from = part;
  }
#if LLMPROF_VECTOR_BITS == 512
  const __m512i all = _mm512_maskz_cvtepu8_epi32(0xffff, _mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  std::memcpy(&words, &all, 64);
#elif LLMPROF_VECTOR_BITS == 256
  const __m256i low = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from))),
                high = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from + 8)));
  std::memcpy(&words, &low, 32);
  std::memcpy(reinterpret_cast<char*>(&words) + 32, &high, 32);
#else
  Codes codes;
  std::memcpy(&codes, from, kLanes);
  words = __builtin_convertvector(codes, Words);
#endif
}
// The upper 24 bits of each word are zero.
LLMPROF_INLINE void narrow_codes(const Words& words, size_t count, uint8_t* to) {
  alignas(16) uint8_t part[kLanes];
  uint8_t* const all_to = count == kLanes ? to : part;
#if LLMPROF_VECTOR_BITS == 512
  __m512i all;
  std::memcpy(&all, &words, 64);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(all_to), _mm512_maskz_cvtepi32_epi8(0xffff, all));
#elif LLMPROF_VECTOR_BITS == 256
  alignas(32) char halves[32];
  narrow(words, halves);
  const __m128i low = _mm_load_si128(reinterpret_cast<const __m128i*>(halves)),
                high = _mm_load_si128(reinterpret_cast<const __m128i*>(halves + 16));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(all_to), _mm_packus_epi16(low, high));
#else
  const Codes codes = __builtin_convertvector(words, Codes);
  std::memcpy(all_to, &codes, kLanes);
#endif
  if (count != kLanes) std::memcpy(to, part, count);
}

// With a store that passes by the caches, of a whole vector at a multiple of its size.
template <class T>
LLMPROF_INLINE void store_streaming(char* to, const Floats& value) {
#if LLMPROF_VECTOR_BITS == 512
  if constexpr (T::kBytes == 4) {
    __m512 whole;
    std::memcpy(&whole, &value, 64);
    _mm512_stream_ps(reinterpret_cast<float*>(to), whole);
    return;
  }
#endif
#if LLMPROF_VECTOR_BITS >= 256
  if constexpr (T::kBytes == 4) {
    for (size_t half = 0; half < 2; ++half) {
      __m256 part;
      std::memcpy(&part, reinterpret_cast<const char*>(&value) + 32 * half, 32);
      _mm256_stream_ps(reinterpret_cast<float*>(to + 32 * half), part);
    }
  } else {
    alignas(32) char halves[32];
    T::store(halves, kLanes, value);
    __m256i whole;
    std::memcpy(&whole, halves, 32);
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to), whole);
  }
#else
  T::store(to, kLanes, value);
#endif
}

template <class T>
void rope_rows(const RopeArrays& of, int64_t first, int64_t last) {
  const int64_t half = of.head / 2;
  for (int64_t row = first; row < last; ++row) {
    const float* const cosines = of.table + (of.positions != nullptr ? of.positions[row] : row) * 2 * half;
    for (int64_t head = 0; head < of.heads; ++head) {
      char* const low = static_cast<char*>(of.x) + static_cast<size_t>(row * of.stride + head * of.head) * T::kBytes;
      char* const high = low + static_cast<size_t>(half) * T::kBytes;
      for (int64_t i = 0; i < half; i += kLanes) {
        const size_t count = left_of(half, i), offset = static_cast<size_t>(i) * T::kBytes;
        Floats a, b, cosine, sine;
        T::load(low + offset, count, a);
        T::load(high + offset, count, b);
        Fp32::load(reinterpret_cast<const char*>(cosines + i), count, cosine);
        Fp32::load(reinterpret_cast<const char*>(cosines + half + i), count, sine);
        T::store(low + offset, count, a * cosine - b * sine);
        T::store(high + offset, count, b * cosine + a * sine);
      }
    }
  }
}

// e4m3 of numbers up to 448 in magnitude, nearest, ties to even. A normal number is the float's own bits with the
// exponent counted from 7 rather than 127 and 20 bits of the mantissa rounded off; smaller ones are multiples of 2^-9,
// which adding 1.5 * 2^23 units of that size rounds to.
LLMPROF_INLINE void to_codes(const Floats& value, Words& codes) {
  Words bits;
  std::memcpy(&bits, &value, 64);
  const Words signs = (bits >> 24) & 0x80U, magnitude = bits & 0x7fffffffU;
  const Words normal = ((magnitude + 0x7ffffU + ((magnitude >> 20) & 1U)) >> 20) - ((127U - 7U) << 3);
  Floats small;
  std::memcpy(&small, &magnitude, 64);
  small += 12582912.0F * 0x1p-9F;
  Words units;
  std::memcpy(&units, &small, 64);
  codes = (magnitude < 0x3c800000U ? (units & 0xfU) : normal) | signs;  // 2^-6, the least normal number
}

LLMPROF_INLINE void from_codes(const Words& codes, Floats& value) {
  const Words magnitude = codes & 0x7fU;
  Words normal = (magnitude << 20) + ((127U - 7U) << 23);
  normal = magnitude == 0x7fU ? Words{} + 0x7fc00000U : normal;
  const Floats small = __builtin_convertvector(magnitude, Floats) * 0x1p-9F;
  Words small_bits;
  std::memcpy(&small_bits, &small, 64);
  const Words all = (magnitude < 8U ? small_bits : normal) | ((codes & 0x80U) << 24);
  std::memcpy(&value, &all, 64);
}

template <class T>
void quantise_rows(const QuantisedArrays& of, int64_t first, int64_t last) {
  for (int64_t row = first; row < last; ++row) {
    const char* const x = static_cast<const char*>(of.wide) + static_cast<size_t>(row * of.columns) * T::kBytes;
    Floats most[kSlots]{};
    each_vector(
        of.columns, LLMPROF_EACH {
          Floats value;
          T::load(x + static_cast<size_t>(column) * T::kBytes, count, value);
          value = value < 0 ? -value : value;
          most[slot] = value > most[slot] ? value : most[slot];
        });
    const float largest = largest_of_slots(most);
    const float scale = largest > 0 ? largest / 448.0F : 1.0F, inverse = 1.0F / scale;
    of.scales[row] = scale;
    uint8_t* const out = of.codes + row * of.columns;
    const Floats limit = Floats{} + 448.0F;
    each_vector(
        of.columns, LLMPROF_EACH {
          Floats value;
          T::load(x + static_cast<size_t>(column) * T::kBytes, count, value);
          value *= inverse;
          // The inverse is rounded too.
          value = value > limit ? limit : value;
          value = value < -limit ? -limit : value;
          Words codes;
          to_codes(value, codes);
          narrow_codes(codes, count, out + column);
        });
  }
}

template <class T, bool kStreaming>
void dequantise_rows(const QuantisedArrays& of, int64_t first, int64_t last) {
  for (int64_t row = first; row < last; ++row) {
    const uint8_t* const x = of.codes + row * of.columns;
    char* const out = static_cast<char*>(of.wide) + static_cast<size_t>(row * of.columns) * T::kBytes;
    const float scale = of.scales[row];
    each_vector(
        of.columns, LLMPROF_EACH {
          const size_t offset = static_cast<size_t>(column) * T::kBytes;
          Words codes;
          widen_codes(x + column, count, codes);
          Floats value;
          from_codes(codes, value);
          value *= scale;
          if constexpr (kStreaming)
            store_streaming<T>(out + offset, value);
          else
            T::store(out + offset, count, value);
        });
  }
#if LLMPROF_VECTOR_BITS >= 256
  if constexpr (kStreaming) _mm_sfence();
#endif
}

template <class T>
MoveKernels move_kernels_of(std::string_view name) {
  MoveKernels all{name, rope_rows<T>, quantise_rows<T>, dequantise_rows<T, false>, nullptr};
#if LLMPROF_VECTOR_BITS >= 256
  all.dequantise_streaming = dequantise_rows<T, true>;
#endif
  return all;
}
