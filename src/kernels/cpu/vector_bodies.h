// What the kernels of all bodies are made of: vectors of a type loaded and stored, loops over a row, sums, exp.
// Included by them, and so by vector_targets.h, once for each width of vectors: vectors are taken apart for the target
// of the function that they stand in, before it is inlined.

struct Fp32 {
  static constexpr size_t kBytes = 4;
  LLMPROF_INLINE static void load(const char* from, size_t count, Floats& out) {
    if (count != kLanes) out = Floats{};
    if (count == kLanes)
      std::memcpy(&out, from, 64);
    else
      std::memcpy(&out, from, 4 * count);
  }
  LLMPROF_INLINE static void store(char* to, size_t count, const Floats& value) {
    if (count == kLanes)
      std::memcpy(to, &value, 64);
    else
      std::memcpy(to, &value, 4 * count);
  }
  LLMPROF_INLINE static void round(Floats&) {}
};

// Sixteen numbers of 16 bits as words and back, which GCC 12 does by way of memory.
LLMPROF_INLINE void widen(const char* from, Words& words) {
#if LLMPROF_VECTOR_BITS == 512
  const __m512i all = _mm512_maskz_cvtepu16_epi32(0xffff, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
  std::memcpy(&words, &all, 64);
#elif LLMPROF_VECTOR_BITS == 256
  const __m256i low = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))),
                high = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + 16)));
  std::memcpy(&words, &low, 32);
  std::memcpy(reinterpret_cast<char*>(&words) + 32, &high, 32);
#else
  Halves halves;
  std::memcpy(&halves, from, 32);
  words = __builtin_convertvector(halves, Words);
#endif
}
// The upper 16 bits of each word are zero.
LLMPROF_INLINE void narrow(const Words& words, char* to) {
#if LLMPROF_VECTOR_BITS == 512
  __m512i all;
  std::memcpy(&all, &words, 64);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_maskz_cvtepi32_epi16(0xffff, all));
#elif LLMPROF_VECTOR_BITS == 256
  __m256i low, high;
  std::memcpy(&low, &words, 32);
  std::memcpy(&high, reinterpret_cast<const char*>(&words) + 32, 32);
  // Packed within each half of the register: quarters 0 and 2 of the result are `low`.
  const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(low, high), 0b11011000);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), packed);
#else
  const Halves halves = __builtin_convertvector(words, Halves);
  std::memcpy(to, &halves, 32);
#endif
}

struct Bf16 {
  static constexpr size_t kBytes = 2;
  LLMPROF_INLINE static void load(const char* from, size_t count, Floats& out) {
    Words words;
    if (count == kLanes) {
      widen(from, words);
    } else {
      alignas(32) char part[32] = {};
      std::memcpy(part, from, 2 * count);
      widen(part, words);
    }
    words <<= 16;
    std::memcpy(&out, &words, 64);
  }
  LLMPROF_INLINE static void store(char* to, size_t count, const Floats& value) {
    Words words;
    std::memcpy(&words, &value, 64);
    words = (words + 0x7fffU + ((words >> 16) & 1U)) >> 16;
    if (count == kLanes) {
      narrow(words, to);
    } else {
      alignas(32) char part[32];
      narrow(words, part);
      std::memcpy(to, part, 2 * count);
    }
  }
  // To what the type keeps.
  LLMPROF_INLINE static void round(Floats& value) {
    Words words;
    std::memcpy(&words, &value, 64);
    words = (words + 0x7fffU + ((words >> 16) & 1U)) & 0xffff0000U;
    std::memcpy(&value, &words, 64);
  }
};

// Lanes from `count` on become `rest`. Without indexing, which would keep the vector in memory.
LLMPROF_INLINE void keep_first(Floats& value, size_t count, float rest) {
  const Words lanes = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  const Floats others = Floats{} + rest;
  value = lanes < static_cast<uint32_t>(count) ? value : others;
}

// In halves, so that the additions do not wait for each other.
LLMPROF_INLINE float sum_of(const Floats& lanes) {
  Quads parts[4];
  std::memcpy(parts, &lanes, 64);
  const Quads sum = (parts[0] + parts[1]) + (parts[2] + parts[3]);
  return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

LLMPROF_INLINE float largest_of(const Floats& lanes) {
  Quads parts[4];
  std::memcpy(parts, &lanes, 64);
  Quads most = parts[0] > parts[1] ? parts[0] : parts[1];
  const Quads other = parts[2] > parts[3] ? parts[2] : parts[3];
  most = most > other ? most : other;
  return std::max(std::max(most[0], most[1]), std::max(most[2], most[3]));
}

// exp for arguments up to 88, as 2^n e^f with |f| <= ln 2 / 2 and a polynomial of degree 6 (relative error under 1e-7);
// below -87 the smallest normal number, which is 0 for every use here.
LLMPROF_INLINE void exponential(Floats& x) {
  const Floats low = Floats{} - 87.0F, high = Floats{} + 88.0F;
  x = x < low ? low : x;
  x = x > high ? high : x;
  const Floats rounder = Floats{} + 12582912.0F;  // 1.5 * 2^23: what is added to it is rounded to whole numbers
  const Floats biased = x * 1.44269504F + rounder;
  const Floats n = biased - rounder;
  const Floats f = (x - n * 0.693359375F) - n * -2.12194440e-4F;
  Floats p = f * (1.0F / 720) + 1.0F / 120;
  p = p * f + 1.0F / 24;
  p = p * f + 1.0F / 6;
  p = p * f + 0.5F;
  p = p * f * f + f + 1.0F;
  Words bits;
  std::memcpy(&bits, &biased, 64);
  bits = (bits << 23) + 0x3f800000U;  // the low bits of `biased` are n
  Floats scale;
  std::memcpy(&scale, &bits, 64);
  x = p * scale;
}

LLMPROF_INLINE size_t left_of(int64_t columns, int64_t column) {
  return static_cast<size_t>(std::min<int64_t>(kLanes, columns - column));
}

// body(column, count, slot) for every vector of a row, `count` of its lanes being used: all of them, known when it is
// compiled, but for the last vector. Neighbours have other slots, so that sums of one do not wait for the other's.
constexpr int kSlots = 4;
template <class Body>
LLMPROF_INLINE void each_vector(int64_t columns, const Body& body) {
  int64_t column = 0;
  for (; column + kSlots * kLanes <= columns; column += kSlots * kLanes) {
    body(column, size_t{kLanes}, 0);
    body(column + kLanes, size_t{kLanes}, 1);
    body(column + 2 * kLanes, size_t{kLanes}, 2);
    body(column + 3 * kLanes, size_t{kLanes}, 3);
  }
  for (; column + kLanes <= columns; column += kLanes) body(column, size_t{kLanes}, 0);
  if (column < columns) body(column, static_cast<size_t>(columns - column), 0);
}

LLMPROF_INLINE float largest_of_slots(const Floats (&lanes)[kSlots]) {
  const Floats one = lanes[0] > lanes[1] ? lanes[0] : lanes[1], other = lanes[2] > lanes[3] ? lanes[2] : lanes[3];
  const Floats most = one > other ? one : other;
  return largest_of(most);
}

LLMPROF_INLINE float sum_of_slots(const Floats (&sums)[kSlots]) {
  return sum_of((sums[0] + sums[1]) + (sums[2] + sums[3]));
}
