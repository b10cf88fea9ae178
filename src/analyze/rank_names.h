// What a report calls a GPU, and what findings of several rules ask about joined ranks.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "analyze/finding.h"
#include "trace/trace.h"

namespace llmprof {

// "GPU 1", or "rank 3 (rank3.json.gz, GPU 1)" with the ordinal of its own recording, where ranks were joined.
std::string rank_name(const Trace& trace, int64_t device);
// What a stage's GPU waits in collectives for another one to begin, over its steps, and in how many that is known.
struct RankWaits {
  double ns = 0;
  int64_t collectives = 0;
};
// By stage; empty where ranks were not joined.
std::map<uint32_t, RankWaits> waits_for_ranks(const FindingContext& finding);
// The row of ranks_joined, kNoRow where there is none.
Row rank_row(const Trace& trace, int64_t device);

}  // namespace llmprof
