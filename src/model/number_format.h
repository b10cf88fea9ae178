// Number formats of weights, cache and activations, and the exact bytes a matrix takes in each of them.
//
// Quantised formats store scales beside the elements; their effective bytes per element are
//   int8               1 + 2/in          one FP16 scale per output channel
//   int4-g128          0.515625          one FP16 scale per 128 inputs (GPTQ, AWQ without zero points)
//   int4-g128-zp       0.51953125        the same with a 4-bit zero point per group
//   fp8                1                 one scale per tensor, not counted
//   fp8-block          1 + 4/16384       one FP32 scale per 128 x 128 block (DeepSeek-V3 technical report, 3.3)
//   mxfp4              0.53125           one E8M0 scale byte per 32 elements (OCP Microscaling formats v1.0)
//   nvfp4              0.5625            one E4M3 scale byte per 16 elements; the FP32 scale per tensor is not counted
// Groups that do not divide the matrix are rounded up, so the bytes of a given matrix are exact.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/result.h"

namespace llmprof {

struct NumberFormat {
  std::string name = "bf16";
  DType element = DType::kBf16;
  int bits = 16;              // per element, scales not included
  int64_t group = 0;          // inputs that share a scale: 0 none, -1 the whole row (per output channel)
  int64_t group_outputs = 1;  // outputs that share a scale (128 for fp8-block)
  int scale_bits = 0;         // per group
  int zero_bits = 0;          // per group
  bool floating = true;

  bool quantised() const { return bits < 16; }
  bool operator==(const NumberFormat& other) const { return name == other.name; }

  // Bytes of a matrix of `out` rows of `in` elements, scales included. Both are at most 2^31, so the sum fits.
  int64_t matrix_bytes(int64_t out, int64_t in) const;
  // Bytes of `count` unscaled elements (activations, cache entries, norms, biases).
  double element_bytes() const { return bits / 8.0; }
  // Bytes per element of a large matrix, scales included; per-channel scales need the row length.
  double effective_bytes(int64_t in) const;
};

// bf16, fp16, fp32, fp8, fp8-block, int8, int4-gN, int4-gN-zp (N = 16 ... 1024), mxfp4, nvfp4; also bfloat16, float16,
// half, float32, float and fp8_e4m3, as config files spell them. `option` names the option in the error.
Result<NumberFormat> parse_weight_format(std::string_view name, std::string_view option);
// The formats without scales: bf16, fp16, fp32, fp8, int8. For activations and the KV cache.
Result<NumberFormat> parse_plain_format(std::string_view name, std::string_view option);

NumberFormat bf16_format();
// The names to show in help and errors.
const std::vector<std::string>& weight_format_names();

}  // namespace llmprof
