// The names and values in the logs of cuBLAS and cuBLASLt.
#pragma once

#include <cstdint>
#include <string_view>

namespace llmprof::blas_log {

// How a product's arguments are called in its record.
enum class Form : uint8_t { kGemm, kGemv, kGrouped };

struct KnownFunction {
  const char* name;  // without _v2 and _64
  Form form;
  int32_t type_a, type_d, compute_type;  // where the record does not say; -1: it does
};

// Null if the function is no product. `name` as the log has it.
const KnownFunction* known_function(std::string_view name);

// The literal for a function of cuBLASLt; null if it is no product.
const char* known_matmul(std::string_view name);

// The value of a name; -1 if unknown. "R_16BF", "COMPUTE_32F", "OP_T", "EPILOGUE_BIAS", "VEC128_32F".
int32_t data_type(std::string_view name);
int32_t compute_type(std::string_view name);
int32_t operation(std::string_view name);
int32_t epilogue(std::string_view name);
int32_t scale_mode(std::string_view name);

// The name of a value; empty if it has none: "COMPUTE_32F", and "BIAS" of EPILOGUE_BIAS.
std::string_view name_of_compute_type(int32_t value);
std::string_view name_of_epilogue(int32_t value);

}  // namespace llmprof::blas_log
