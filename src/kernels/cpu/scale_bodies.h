// The kernel of scale_sums.cc, included by vector_targets.h once for each width of vectors.
#include "kernels/cpu/vector_bodies.h"

inline void scale_sums(const ScaledSums& arrays, int64_t first_row, int64_t last_row) {
  using Integers = int32_t __attribute__((vector_size(64)));
  for (int64_t row = first_row; row < last_row; ++row) {
    const int32_t* const sums = arrays.sums + row * arrays.columns;
    uint16_t* const out = arrays.out + row * arrays.columns;
    for (int64_t column = 0; column < arrays.columns; column += kLanes) {
      const size_t count = static_cast<size_t>(arrays.columns - column < kLanes ? arrays.columns - column : kLanes);
      Integers integers{};
      std::memcpy(&integers, sums + column, 4 * count);
      Floats scales{};
      Fp32::load(reinterpret_cast<const char*>(arrays.column_scales + column), count, scales);
      const Floats scaled = __builtin_convertvector(integers, Floats) * (scales * arrays.row_scales[row]);
      Bf16::store(reinterpret_cast<char*>(out + column), count, scaled);
    }
  }
}
