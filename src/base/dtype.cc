#include "base/dtype.h"

#include <array>

namespace llmprof {
namespace {

constexpr size_t kTypes = static_cast<size_t>(DType::kCount);
constexpr std::array<std::string_view, kTypes> kNames = {"unknown", "fp64", "fp32",  "tf32",  "fp16",  "bf16", "fp8",
                                                         "int8",    "int4", "int16", "int32", "int64", "bool", "fp4"};
constexpr std::array<double, kTypes> kBytes = {0, 8, 4, 4, 2, 2, 1, 1, 0.5, 2, 4, 8, 1, 0.5};

}  // namespace

std::string_view dtype_name(DType dtype) {
  const size_t i = static_cast<size_t>(dtype);
  return i < kTypes ? kNames[i] : kNames[0];
}

double dtype_bytes(DType dtype) {
  const size_t i = static_cast<size_t>(dtype);
  return i < kTypes ? kBytes[i] : 0;
}

std::optional<DType> parse_dtype(std::string_view name) {
  for (size_t i = 1; i < kTypes; ++i)
    if (kNames[i] == name) return static_cast<DType>(i);
  return std::nullopt;
}

}  // namespace llmprof
