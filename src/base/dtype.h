// Element types of tensors, as they occur in recordings, models and benchmarks.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace llmprof {

// kUnknown where a recording does not say. kTf32 lies in memory as kFp32.
enum class DType : uint8_t {
  kUnknown,
  kFp64,
  kFp32,
  kTf32,
  kFp16,
  kBf16,
  kFp8,
  kInt8,
  kInt4,
  kInt16,
  kInt32,
  kInt64,
  kBool,
  kFp4,
  kCount
};
std::string_view dtype_name(DType dtype);                 // "bf16"
double dtype_bytes(DType dtype);                          // per element; 0 for kUnknown
std::optional<DType> parse_dtype(std::string_view name);  // of dtype_name, "unknown" excepted

}  // namespace llmprof
