// Products of decode steps on rows that are no new tokens: what an encoder or a prompt left is multiplied with weights
// once more for each token (keys and values of a cross attention, most often), and comes out the same every time.
#pragma once

#include <vector>

#include "analyze/analysis.h"

namespace llmprof {

// Products of one inner width, and of two outer ones at most, on at least 16 times as many rows as tokens are new,
// where as many others run on the new tokens alone. And all activities of a pass before the decoder's, on as many rows,
// where no product of the decoder has these: of an encoder that runs again, though what it gave is kept.
std::vector<GpuOpId> recomputed_products(const Context& context);

}  // namespace llmprof
