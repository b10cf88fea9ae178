// Routing of tokens to experts: the k most likely of each token, their weights, and the places that its copies take
// when rows are put in the order of experts. What runs before and between the grouped products of a mixture of experts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"
#include "device/device.h"
#include "kernels/op.h"

namespace llmprof::kernels {

constexpr int64_t kRoutedExpertsMax = 1024, kRoutedMax = 32;

struct Routing {
  const Buffer& logits;   // [tokens, experts]
  const Buffer& ids;      // int32 [tokens, k]: experts by falling logit, the lowest of equal ones first
  const Buffer& weights;  // fp32 [tokens, k]: softmax over the logits of these
  const Buffer& offsets;  // int32 [experts + 1]: where each expert's rows begin
  const Buffer& order;    // int32 [tokens k]: the slots (token k + place) of expert 0, then of expert 1, ...; any order
                          // within an expert
  DType dtype = DType::kBf16;
  int64_t tokens = 0, experts = 0, k = 0;
};
// Every id, offset and place; weights of up to 4,096 tokens.
Result<Check> check_routing(Device& device, const Routing& routing);

// What no device does: too many experts, or more than there are.
std::optional<std::string> routing_unsupported(const OpParams& params);

}  // namespace llmprof::kernels
