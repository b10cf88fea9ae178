// Kernels that compute in double precision, by their names. No step of a model needs it: a NumPy array of Python
// numbers, a .double() or a float64 constant brings it in, and everything behind it moves twice the bytes.
#pragma once

#include <string_view>
#include <utility>
#include <vector>

#include "analyze/analysis.h"

namespace llmprof {

// Whether the kernel's elements are doubles: as the first type of a template, as what an elementwise function takes
// ("lambda(double)"), as what its pointers point to, or as a product's name says it (dgemm, d884gemm). A double among
// the other parameters is a scalar.
bool computes_in_double(std::string_view kernel_name);

// With what each would take in single precision: half the bytes, and no less than half the arithmetic; a conversion
// keeps its other side.
std::vector<std::pair<GpuOpId, int64_t>> double_precision(const Context& context);

}  // namespace llmprof
