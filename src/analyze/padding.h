// What decode steps compute and nobody needs: rows that no sequence is in, and places of a cache that hold no key. Said
// only where the recording proves it: it sees what is computed, and seldom what of it is used.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "analyze/analysis.h"

namespace llmprof {

// Each step of a stage runs its products and its attention on `rows` sequences, reads back one number for each of
// `sequences`, and as many had the prompts before it.
struct PaddedBatch {
  int64_t rows = 0, sequences = 0;
  int64_t needed = 0;      // rows of a step made for them: the next power of two
  int64_t read_bytes = 0;  // that a step reads back at once, at most
};
// Nothing where the recording does not say how many are in use, and where less than half of the rows are idle.
std::optional<PaddedBatch> padded_batch(const Context& context, uint32_t stage);

// What each kernel takes with no more rows than needed, ns by activity (replay::KernelTimes).
void add_needed_rows(const Context& context, std::vector<int64_t>& times);

}  // namespace llmprof
