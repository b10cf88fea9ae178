// The kernels of cpu_kernels.cc, included by device/cpu/ops/vector_targets.h once for each width of vectors, with those
// of kernels/cpu/row_bodies.h before them.

#include "kernels/cpu/row_bodies.h"

template <class T>
void add_elements(const void* x, void* to, int64_t first, int64_t last) {
  for (int64_t at = first; at < last; at += kLanes) {
    const size_t count = left_of(last, at), offset = static_cast<size_t>(at) * T::kBytes;
    Floats a, b;
    T::load(static_cast<const char*>(x) + offset, count, a);
    T::load(static_cast<const char*>(to) + offset, count, b);
    T::store(static_cast<char*>(to) + offset, count, a + b);
  }
}

template <class T>
void gelu_elements(const void* x, void* out, int64_t first, int64_t last) {
  for (int64_t at = first; at < last; at += kLanes) {
    const size_t count = left_of(last, at), offset = static_cast<size_t>(at) * T::kBytes;
    Floats value;
    T::load(static_cast<const char*>(x) + offset, count, value);
    gelu(value);
    T::store(static_cast<char*>(out) + offset, count, value);
  }
}

inline int64_t largest_of_row(const float* row, int64_t columns) {
  constexpr float kLowest = -std::numeric_limits<float>::infinity();
  Floats most[kSlots] = {Floats{} + kLowest, Floats{} + kLowest, Floats{} + kLowest, Floats{} + kLowest};
  each_vector(
      columns, LLMPROF_EACH {
        Floats value;
        Fp32::load(reinterpret_cast<const char*>(row + column), count, value);
        if (count != kLanes) keep_first(value, count, kLowest);
        most[slot] = value > most[slot] ? value : most[slot];
      });
  const float* const found = std::find(row, row + columns, largest_of_slots(most));
  return found == row + columns ? 0 : found - row;  // no numbers at all
}

template <class T>
CpuKernels all_kernels() {
  return {layernorm_rows<T, false>, add_elements<T>, gelu_elements<T>, largest_of_row};
}
