// What was in use within the ranges that a program named while PyTorch's allocator recorded its history.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "results/report.h"
#include "trace/trace.h"

namespace llmprof {

// The history of one device: moments of its events in order, what is in use behind each, and before the first.
struct MemoryLevels {
  int32_t device = -1;
  std::vector<int64_t> time_ns{}, in_use{};
  int64_t before = -1;  // -1: levels are not known
};

// Names of the ranges around a moment, outermost first, with > between; nothing outside of all.
OptText ranges_around(const Trace& trace, int32_t device, int64_t time_ns);

// Adds a row for each name.
void add_memory_ranges(const Trace& trace, const MemoryLevels& levels, Report& report);

}  // namespace llmprof
