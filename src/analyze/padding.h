// What decode steps compute and nobody needs: rows that no sequence is in, and places of a cache that hold no key. Said
// only where the recording proves it: it sees what is computed, and seldom what of it is used.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "analyze/analysis.h"
#include "analyze/groups.h"

namespace llmprof {

bool is_decode_to_judge(const StageGroup& group);  // of steps that were recorded whole, after warm-up

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

// Each step's attention reads at least twice as many keys as the program can have made: no more than all tokens that it
// ran its model on until then, in a recording of its whole life. Figures are of a step and layer, all sequences
// together, in the mean over the steps of which that is known.
struct PaddedAttention {
  double read = 0;    // keys, at least
  double tokens = 0;  // that the model ran on until then
  double in_use = 0;  // keys by context, rounded up to kPlaces for each sequence
  double sequences = 0;
  bool by_counter = false;        // else from the shapes of products
  double dram_bytes = 0;          // by_counter: traffic of a step
  std::map<StepId, double> kept;  // part of its attention's time that a step needs
};
// A program that reads no more of its cache than it needs does so in pieces: of so many places.
constexpr int64_t kPlaces = 256;
std::optional<PaddedAttention> padded_attention(const Context& context, uint32_t stage);

// What each kernel of attention takes with no more keys than are in use.
void add_needed_keys(const Context& context, std::vector<int64_t>& times);

}  // namespace llmprof
