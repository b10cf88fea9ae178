// From the activities of the steps to their windows: the times a user would measure. A decode step lasts from the end
// of the step before it, so that the host's work between steps counts; a prefill lasts from its first host activity,
// and a stage that launched nothing as long as the program's range.
#pragma once

#include <vector>

#include "derive/host_calls.h"
#include "derive/recorded_spans.h"
#include "derive/step_draft.h"

namespace llmprof {

// When host events that recur every step were seen on each thread: products of libraries and launches of graphs, which
// are recorded at every level.
class RecurringTimes {
 public:
  explicit RecurringTimes(const Trace& trace);
  bool any(ThreadId thread, int64_t from_ns, int64_t to_ns) const;  // in (from, to)

 private:
  std::vector<std::vector<int64_t>> times_;  // by thread, rising
};

// What is longer belongs to no step: 10 medians of the steps' lengths, and 100 ms. `lengths` is not empty.
int64_t pause_of(std::vector<int64_t> lengths);

// Sets sync_ns and the window of each step. `steps` are those of one device in host order. Windows do not overlap and
// start <= end. A pause belongs to no step. A detected step does not
// reach back over time in which kernels were not recorded: steps may be missing there. Nor does one that the program
// names, where the model was seen to run in that time: then one that it does not name is missing.
void set_windows(std::vector<StepDraft>& steps, const HostCalls& calls, const RecurringTimes& recurring,
                 const std::vector<TimeSpan>& unrecorded);

}  // namespace llmprof
