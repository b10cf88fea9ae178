// Drawing a token from logits, in fp64.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "kernels/reference/rows.h"

namespace llmprof::kernels {

struct SamplingRule {
  int64_t k = 50;  // so many of the most likely tokens
  double top_p = 0.9, temperature = 0.8;
};

// Whether `token`, drawn with `draw` of [0, 1) and given this probability, is one that the rule allows: why not, or
// nothing. Among equal logits any may be the one, and where sums in single precision may fall to either side of a
// boundary, both are right.
std::optional<std::string> sampling_wrong(const Row& logits, const SamplingRule& rule, double draw, int64_t token,
                                          double probability);

// Index of the largest, the lowest of several.
int64_t argmax(const Row& logits);

// What was drawn from rows of logits.
struct Drawn {
  const Buffer& token;        // int32 of each row
  const Buffer& probability;  // fp32; not written by the greedy rule
  const Buffer& logits;       // [batch][vocabulary]
  const Buffer& draw;         // fp32 in [-1, 1) of each row: a draw of [0, 1) is half of it and a half
  int64_t batch = 1, vocabulary = 1;
  DType dtype = DType::kFp32;
};
// 16 rows, the first and the last among them. Without a rule the largest must have been taken.
Result<Check> check_drawn(Device& device, const Drawn& drawn, const SamplingRule* rule, uint64_t seed);

}  // namespace llmprof::kernels
