// The operators of row_kernels.cc, included by vector_targets.h once for each width of vectors: vectors are taken apart
// for the target of the function that they stand in, before it is inlined.

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

struct Bf16 {
  static constexpr size_t kBytes = 2;
  LLMPROF_INLINE static void load(const char* from, size_t count, Floats& out) {
    Halves halves{};
    if (count == kLanes)
      std::memcpy(&halves, from, 32);
    else
      std::memcpy(&halves, from, 2 * count);
    const Words words = __builtin_convertvector(halves, Words) << 16;
    std::memcpy(&out, &words, 64);
  }
  LLMPROF_INLINE static void store(char* to, size_t count, const Floats& value) {
    Words words;
    std::memcpy(&words, &value, 64);
    words = (words + 0x7fffU + ((words >> 16) & 1U)) >> 16;
    const Halves halves = __builtin_convertvector(words, Halves);
    if (count == kLanes)
      std::memcpy(to, &halves, 32);
    else
      std::memcpy(to, &halves, 2 * count);
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

template <class T>
void rmsnorm_rows(const RowArrays& of, int64_t first, int64_t last) {
  const size_t row_bytes = static_cast<size_t>(of.columns) * T::kBytes;
  const char* const gain = static_cast<const char*>(of.gain);
  for (int64_t row = first; row < last; ++row) {
    const size_t at = static_cast<size_t>(row) * row_bytes;
    const char* x = static_cast<const char*>(of.x) + at;
    char* const residual = of.residual != nullptr ? static_cast<char*>(of.residual) + at : nullptr;
    Floats squares{};
    for (int64_t column = 0; column < of.columns; column += kLanes) {
      const size_t count = left_of(of.columns, column), offset = static_cast<size_t>(column) * T::kBytes;
      Floats value;
      T::load(x + offset, count, value);
      if (residual != nullptr) {
        Floats before;
        T::load(residual + offset, count, before);
        value += before;
        T::round(value);
        T::store(residual + offset, count, value);
      }
      squares += value * value;
    }
    if (residual != nullptr) x = residual;
    const float scale = 1.0F / std::sqrt(sum_of(squares) / static_cast<float>(of.columns) + of.epsilon);
    char* const out = static_cast<char*>(of.out) + at;
    for (int64_t column = 0; column < of.columns; column += kLanes) {
      const size_t count = left_of(of.columns, column), offset = static_cast<size_t>(column) * T::kBytes;
      Floats value, weight;
      T::load(x + offset, count, value);
      T::load(gain + offset, count, weight);
      T::store(out + offset, count, value * scale * weight);
    }
  }
}

// gelu by tanh: y / (1 + exp(-2 u)), u = sqrt(2 / pi) (y + 0.044715 y^3).
LLMPROF_INLINE void gelu(Floats& y) {
  Floats e = -1.5957691216F * (y + 0.044715F * y * y * y);
  exponential(e);
  y = y / (1.0F + e);
}

template <class T, bool kThenGelu>
void layernorm_rows(const RowArrays& of, int64_t first, int64_t last) {
  const size_t row_bytes = static_cast<size_t>(of.columns) * T::kBytes;
  const auto columns = static_cast<float>(of.columns);
  for (int64_t row = first; row < last; ++row) {
    const char* const x = static_cast<const char*>(of.x) + static_cast<size_t>(row) * row_bytes;
    Floats sums{};
    for (int64_t column = 0; column < of.columns; column += kLanes) {
      Floats value;
      T::load(x + static_cast<size_t>(column) * T::kBytes, left_of(of.columns, column), value);
      sums += value;
    }
    const float mean = sum_of(sums) / columns;
    Floats squares{};
    for (int64_t column = 0; column < of.columns; column += kLanes) {
      const size_t count = left_of(of.columns, column);
      Floats value;
      T::load(x + static_cast<size_t>(column) * T::kBytes, count, value);
      value -= mean;
      if (count != kLanes) keep_first(value, count, 0);
      squares += value * value;
    }
    const float scale = 1.0F / std::sqrt(sum_of(squares) / columns + of.epsilon);
    char* const out = static_cast<char*>(of.out) + static_cast<size_t>(row) * row_bytes;
    for (int64_t column = 0; column < of.columns; column += kLanes) {
      const size_t count = left_of(of.columns, column), offset = static_cast<size_t>(column) * T::kBytes;
      Floats value, weight, shift;
      T::load(x + offset, count, value);
      T::load(static_cast<const char*>(of.gain) + offset, count, weight);
      T::load(static_cast<const char*>(of.bias) + offset, count, shift);
      value = (value - mean) * scale * weight + shift;
      if constexpr (kThenGelu) gelu(value);
      T::store(out + offset, count, value);
    }
  }
}

template <class T>
void softmax_rows(const RowArrays& of, int64_t first, int64_t last) {
  const size_t row_bytes = static_cast<size_t>(of.columns) * T::kBytes;
  for (int64_t row = first; row < last; ++row) {
    const char* const x = static_cast<const char*>(of.x) + static_cast<size_t>(row) * row_bytes;
    char* const out = static_cast<char*>(of.out) + static_cast<size_t>(row) * row_bytes;
    Floats most = Floats{} - std::numeric_limits<float>::infinity();
    for (int64_t column = 0; column < of.columns; column += kLanes) {
      const size_t count = left_of(of.columns, column);
      Floats value;
      T::load(x + static_cast<size_t>(column) * T::kBytes, count, value);
      if (count != kLanes) keep_first(value, count, value[0]);
      most = value > most ? value : most;
    }
    float top = most[0];
    for (int lane = 1; lane < kLanes; ++lane) top = std::max(top, most[lane]);
    // Twice the exponential rather than a row of fp32 between: the row is in the cache, and bf16 would round twice.
    Floats sums{};
    for (int64_t column = 0; column < of.columns; column += kLanes) {
      const size_t count = left_of(of.columns, column);
      Floats value;
      T::load(x + static_cast<size_t>(column) * T::kBytes, count, value);
      value -= top;
      exponential(value);
      if (count != kLanes) keep_first(value, count, 0);
      sums += value;
    }
    const float share = 1.0F / sum_of(sums);
    for (int64_t column = 0; column < of.columns; column += kLanes) {
      const size_t count = left_of(of.columns, column), offset = static_cast<size_t>(column) * T::kBytes;
      Floats value;
      T::load(x + offset, count, value);
      value -= top;
      exponential(value);
      T::store(out + offset, count, value * share);
    }
  }
}

template <class T>
void swiglu_rows(const RowArrays& of, int64_t first, int64_t last) {
  const size_t row_bytes = static_cast<size_t>(of.columns) * T::kBytes;
  for (int64_t row = first; row < last; ++row) {
    const char* const gates = static_cast<const char*>(of.x) + static_cast<size_t>(row) * 2 * row_bytes;
    char* const out = static_cast<char*>(of.out) + static_cast<size_t>(row) * row_bytes;
    for (int64_t column = 0; column < of.columns; column += kLanes) {
      const size_t count = left_of(of.columns, column), offset = static_cast<size_t>(column) * T::kBytes;
      Floats gate, up;
      T::load(gates + offset, count, gate);
      T::load(gates + row_bytes + offset, count, up);
      Floats e = -gate;
      exponential(e);
      T::store(out + offset, count, gate / (1.0F + e) * up);
    }
  }
}

template <class T>
RowKernels kernels(std::string_view name) {
  return {name, rmsnorm_rows<T>, layernorm_rows<T, true>, softmax_rows<T>, swiglu_rows<T>};
}
