// What a timeline shows of a recording, before it is packed: tracks of slices and counters, in the order in which they
// stand on the page. Slices of a track are in order of their start (longer ones first), and two of one depth do not
// overlap: ranges of a host thread nest, activities of a stream that overlap lie in lanes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/string_pool.h"
#include "trace/timeline_choice.h"
#include "trace/trace.h"

namespace llmprof::timeline {

enum class TrackKind : uint8_t {
  kStages,
  kPath,
  kStream,
  kIdle,
  kWaits,  // synchronisation as the GPU's records have it
  kRanges,
  kPython,
  kOperators,
  kLibraries,
  kCalls,
  kRecorder,
  kCount
};
std::string_view name_of(TrackKind kind);

// What a slice is coloured by. Those of GPU activities come first: Category, by its number.
enum class Tint : uint8_t {
  kGraph = static_cast<uint8_t>(Category::kCount),  // a CUDA graph that is recorded as a whole
  kStage,
  kPath,
  kIdle,
  kRange,
  kPython,
  kOperator,
  kLibrary,
  kLaunch,
  kWait,
  kCopyCall,
  kAllocation,
  kCall,
  kRecorder,
  kMerged,
  kCount
};
std::string_view tint_name(uint8_t tint);

// Rows that slices stand for and that arrows lead to.
enum class Of : uint8_t { kNothing, kActivity, kCall, kRange, kGraph, kCount };
struct Anchor {
  Of of = Of::kNothing;
  Row row = kNoRow;
};

struct Slice {
  int64_t start_ns = 0, dur_ns = 0;
  uint32_t name = 0, detail = 0;  // texts
  Anchor own, target;             // target: what led to it, what it lies on, or what it waited for
  uint16_t depth = 0;
  uint8_t tint = 0;
  int64_t end_ns() const { return start_ns + dur_ns; }
};

struct Track {
  std::string name;
  uint32_t group = 0;
  TrackKind kind = TrackKind::kStages;
  std::vector<Slice> slices;
  std::vector<std::pair<Anchor, uint32_t>> merged;  // what lies in a merged slice now -> that slice
};

// A value holds until the next; NaN: not known from here on.
struct Counter {
  std::string name, unit;
  uint32_t group = 0;
  std::vector<int64_t> times_ns;
  std::vector<float> values;
};

struct Timeline {
  std::vector<std::string> groups;
  std::vector<Track> tracks;
  std::vector<Counter> counters;
  StringPool texts;  // 0: none
  std::vector<std::pair<uint32_t, std::string>>
      shorts;                   // shown instead of long kernel names, where there is room for little
  int64_t merged_below_ns = 0;  // 0: nothing was merged
  uint64_t merged_slices = 0;
};

Timeline collect(const Trace& trace, const TimelineChoice& choice);

// Half-open.
struct Stretch {
  int64_t start_ns = 0, end_ns = 0;
};
// Merges slices that are shorter than some time and lie close together, until no more than `most` are left. What lies
// in `exact` (in order, disjoint) stays as it is.
void merge_short(Timeline& timeline, size_t most, const std::vector<Stretch>& exact);

}  // namespace llmprof::timeline
