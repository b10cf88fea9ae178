// When kernels were not recorded although the program ran, per device: from the recording levels of the processes that
// use it. A recording without levels (any other recorder) counts as recorded throughout, unless its file ends in the
// middle: then nothing is known after the last activity of a device. Before the first and after the
// last level of a process nothing is known and nothing is claimed. Nor is recording taken to have paused while the
// recorder brought a new graph to the GPU, where one thread of the process launches.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string_view>
#include <vector>

#include "trace/trace.h"

namespace llmprof {

// Half-open.
struct TimeSpan {
  int64_t start_ns = 0;
  int64_t end_ns = 0;
};

class RecordedSpans {
 public:
  // Needs gpu_links (link_launches) to know which process uses which device; a device without linked activity is taken
  // to be used by every process.
  explicit RecordedSpans(const Trace& trace);

  // Sorted, disjoint, not empty.
  const std::vector<TimeSpan>& unrecorded(int32_t device) const;
  const std::vector<TimeSpan>& unrecorded_process(int64_t process_id) const;
  // Where the host launched what then ran into such time: of these launches some activities are missing.
  const std::vector<TimeSpan>& cut_launches(int32_t device) const;
  // Where the recorder was attached, detached or switched on, which held the program up.
  const std::vector<TimeSpan>& switching(int32_t device) const;
  // Whether a span of the list overlaps [start_ns, end_ns); O(log n).
  static bool touches(const std::vector<TimeSpan>& spans, int64_t start_ns, int64_t end_ns);
  // Whether one span of the list holds all of it; O(log n).
  static bool holds(const std::vector<TimeSpan>& spans, int64_t start_ns, int64_t end_ns);

 private:
  struct Spans {
    std::vector<TimeSpan> unrecorded, cut, switching;
  };
  void add_lost_ends(const Trace& trace);

  std::map<int32_t, Spans> devices_;
  std::map<int64_t, Spans> processes_;
  Spans all_, none_;
};

// Processes whose calls launched something on each device. Needs gpu_links.
std::map<int32_t, std::set<int64_t>> processes_of_devices(const Trace& trace);

// Reasons of levels of the recorder (capture/inject/recording.cc): it was attached, switched on or detached.
inline bool is_switching(std::string_view reason) { return reason == "attaching" || reason == "detaching"; }

// A recording of llmprof's own recorder: it may hold no operators, and says what it recorded when.
inline bool is_live_recording(const Trace& trace) { return !trace.recorded.empty() || !trace.library_calls.empty(); }

}  // namespace llmprof
