// What a timeline opens with, beside the recording itself: for each stage its median and its slowest step, and the
// critical path of those two. src/analyze fills it, since it takes stages and replay; src/report packs it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "trace/tables.h"

namespace llmprof {

// A piece of the longest chain of dependencies to the end of a step, where it was recorded.
struct CriticalPiece {
  int64_t start_ns = 0, end_ns = 0;
  std::string_view part;  // "launch latency"
  GpuOpId op = kNoRow;    // what it lies on, or what began behind it
  ApiCallId call = kNoRow;
};

struct StepChoice {
  StepId step = kNoRow;
  std::vector<CriticalPiece> path;  // in order of time, none reaching into another; empty where it is not known
};

// Of the steady steps of a stage that are recorded whole.
struct StageChoice {
  std::string stage;
  size_t steps = 0;
  StepChoice median, slowest;  // the same step twice where there is only one
};

struct TimelineChoice {
  std::vector<StageChoice> stages;  // those that take most time first
  // By API call that waits for the GPU, or makes a stream wait: the last activity to end of those that it waited for,
  // which ended before the call returned; kNoRow where there was none, or it is not known. Empty: of no call.
  std::vector<GpuOpId> awaited;
  size_t slices_most = 1'500'000;  // above that, short ones are merged
};

}  // namespace llmprof
