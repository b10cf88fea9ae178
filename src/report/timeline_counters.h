// The counters of a timeline: what the GPU's samples, NVML's readings, the allocator and counter events of a recording
// say over time.
#pragma once

#include <map>

#include "report/timeline_slices.h"

namespace llmprof::timeline {

// Appends those that have a value, one for each device of the map (ordinal -> group); what has no device goes to the
// first. Of more samples than a page can show, neighbours are averaged.
void add_counters(const Trace& trace, const std::map<int32_t, uint32_t>& groups, Timeline& out);

}  // namespace llmprof::timeline
