// Products of decode steps on rows that are no new tokens: what an encoder or a prompt left is multiplied with weights
// once more for each token (keys and values of a cross attention, most often), and comes out the same every time.
#pragma once

#include <vector>

#include "analyze/analysis.h"

namespace llmprof {

// Where a decode step runs products of one inner width, and of two outer ones at most, on at least 16 times as many
// rows as tokens are new, and as many others on the new tokens alone. An encoder that runs in each step has products of
// more widths, since it takes results of its own in.
std::vector<GpuOpId> recomputed_products(const Context& context);

}  // namespace llmprof
