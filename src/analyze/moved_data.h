// Kernels that compute nothing: copies on the device, gathers, casts and writes of a cache, each long enough for its
// bytes to be the reason.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "analyze/analysis.h"

namespace llmprof {

struct MovedData {
  // Of steps, in order of time. What other findings know better is left to them: weights that are converted before
  // their products, concatenations in decode steps (a cache that is not written in place).
  std::vector<GpuOpId> moves;
  // Passes over memory that functions launch which mostly move data (half of the time of all their passes is moves):
  // what fills the room that is copied to, or computes on what was copied for it. Where places of launches are known.
  std::vector<GpuOpId> beside;
  // Those functions (python_function), by stage (row of Groups::stages): a tenth of its GPU time and more is their
  // moves.
  std::set<std::pair<uint32_t, std::string>> functions;
};
MovedData moved_data(const Context& context);

}  // namespace llmprof
