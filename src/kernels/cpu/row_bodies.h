// The operators of row_kernels.cc, included by vector_targets.h once for each width of vectors.

#include "kernels/cpu/vector_bodies.h"

template <class T>
void rmsnorm_rows(const RowArrays& of, int64_t first, int64_t last) {
  const size_t row_bytes = static_cast<size_t>(of.columns) * T::kBytes;
  const char* const gain = static_cast<const char*>(of.gain);
  for (int64_t row = first; row < last; ++row) {
    const size_t at = static_cast<size_t>(row) * row_bytes;
    const char* x = static_cast<const char*>(of.x) + at;
    char* const residual = of.residual != nullptr ? static_cast<char*>(of.residual) + at : nullptr;
    Floats squares[kSlots]{};
    if (residual != nullptr) {
      each_vector(
          of.columns, LLMPROF_EACH {
            const size_t offset = static_cast<size_t>(column) * T::kBytes;
            Floats value, before;
            T::load(x + offset, count, value);
            T::load(residual + offset, count, before);
            value += before;
            T::round(value);
            T::store(residual + offset, count, value);
            squares[slot] += value * value;
          });
      x = residual;
    } else {
      each_vector(
          of.columns, LLMPROF_EACH {
            Floats value;
            T::load(x + static_cast<size_t>(column) * T::kBytes, count, value);
            squares[slot] += value * value;
          });
    }
    const float scale = 1.0F / std::sqrt(sum_of_slots(squares) / static_cast<float>(of.columns) + of.epsilon);
    char* const out = static_cast<char*>(of.out) + at;
    each_vector(
        of.columns, LLMPROF_EACH {
          const size_t offset = static_cast<size_t>(column) * T::kBytes;
          Floats value, weight;
          T::load(x + offset, count, value);
          T::load(gain + offset, count, weight);
          T::store(out + offset, count, value * scale * weight);
        });
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
    Floats sums[kSlots]{};
    each_vector(
        of.columns, LLMPROF_EACH {
          Floats value;
          T::load(x + static_cast<size_t>(column) * T::kBytes, count, value);
          sums[slot] += value;
        });
    const float mean = sum_of_slots(sums) / columns;
    Floats squares[kSlots]{};
    each_vector(
        of.columns, LLMPROF_EACH {
          Floats value;
          T::load(x + static_cast<size_t>(column) * T::kBytes, count, value);
          value -= mean;
          if (count != kLanes) keep_first(value, count, 0);
          squares[slot] += value * value;
        });
    const float scale = 1.0F / std::sqrt(sum_of_slots(squares) / columns + of.epsilon);
    char* const out = static_cast<char*>(of.out) + static_cast<size_t>(row) * row_bytes;
    each_vector(
        of.columns, LLMPROF_EACH {
          const size_t offset = static_cast<size_t>(column) * T::kBytes;
          Floats value, weight, shift;
          T::load(x + offset, count, value);
          T::load(static_cast<const char*>(of.gain) + offset, count, weight);
          T::load(static_cast<const char*>(of.bias) + offset, count, shift);
          value = (value - mean) * scale * weight + shift;
          if constexpr (kThenGelu) gelu(value);
          T::store(out + offset, count, value);
        });
  }
}

template <class T>
void softmax_rows(const RowArrays& of, int64_t first, int64_t last) {
  const size_t row_bytes = static_cast<size_t>(of.columns) * T::kBytes;
  for (int64_t row = first; row < last; ++row) {
    const char* const x = static_cast<const char*>(of.x) + static_cast<size_t>(row) * row_bytes;
    char* const out = static_cast<char*>(of.out) + static_cast<size_t>(row) * row_bytes;
    const float lowest = -std::numeric_limits<float>::infinity();
    Floats most[kSlots] = {Floats{} + lowest, Floats{} + lowest, Floats{} + lowest, Floats{} + lowest};
    each_vector(
        of.columns, LLMPROF_EACH {
          Floats value;
          T::load(x + static_cast<size_t>(column) * T::kBytes, count, value);
          if (count != kLanes) keep_first(value, count, lowest);
          most[slot] = value > most[slot] ? value : most[slot];
        });
    const float top = largest_of_slots(most);
    // Twice the exponential rather than a row of fp32 between: the row is in the cache, and bf16 would round twice.
    Floats sums[kSlots]{};
    each_vector(
        of.columns, LLMPROF_EACH {
          Floats value;
          T::load(x + static_cast<size_t>(column) * T::kBytes, count, value);
          value -= top;
          exponential(value);
          if (count != kLanes) keep_first(value, count, 0);
          sums[slot] += value;
        });
    const float share = 1.0F / sum_of_slots(sums);
    each_vector(
        of.columns, LLMPROF_EACH {
          const size_t offset = static_cast<size_t>(column) * T::kBytes;
          Floats value;
          T::load(x + offset, count, value);
          value -= top;
          exponential(value);
          T::store(out + offset, count, value * share);
        });
  }
}

template <class T>
void swiglu_rows(const RowArrays& of, int64_t first, int64_t last) {
  const size_t row_bytes = static_cast<size_t>(of.columns) * T::kBytes;
  for (int64_t row = first; row < last; ++row) {
    const char* const gates = static_cast<const char*>(of.x) + static_cast<size_t>(row) * 2 * row_bytes;
    char* const out = static_cast<char*>(of.out) + static_cast<size_t>(row) * row_bytes;
    each_vector(
        of.columns, LLMPROF_EACH {
          const size_t offset = static_cast<size_t>(column) * T::kBytes;
          Floats gate, up;
          T::load(gates + offset, count, gate);
          T::load(gates + row_bytes + offset, count, up);
          Floats e = -gate;
          exponential(e);
          T::store(out + offset, count, gate / (1.0F + e) * up);
        });
  }
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

template <class T>
RowKernels kernels(std::string_view name) {
  return {name, rmsnorm_rows<T>, layernorm_rows<T, true>, softmax_rows<T>, swiglu_rows<T>, rope_rows<T>};
}
