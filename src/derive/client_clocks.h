// How the clock of a client and that of a recording may differ, by what cannot be otherwise: what a request waits for
// begins after it was sent, and has ended when the first of its output comes. So each request that waited in recorded
// time has a step of the GPU between the two. Where that holds with the clocks taken as one, they are, within the
// differences to both sides for which it holds as well; where it does not, they are not one clock.
// docs/formats/serving-benchmarks.md.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "derive/recorded_spans.h"
#include "trace/trace.h"

namespace llmprof {

// Of the requests of one run of a client's file.
struct ClientClock {
  StringId source = StringId::kEmpty;
  int64_t timed = 0;  // requests with a wall clock
  int32_t device = -1;
  // Why no request was placed; empty where they were, with the clocks taken as one.
  std::string why{};
  // The client's clock is ahead of the recorder's by no less and no more; empty: nothing recorded bounds it within 10
  // s.
  std::optional<int64_t> least_ns{}, most_ns{};
  // They differ by at least so much; 0 where they may be one.
  int64_t apart_ns = 0;
};

// Of every run with requests, in their order.
std::vector<ClientClock> client_clocks(const Trace& trace);

// When activities of a device were recorded: sorted, disjoint.
std::vector<TimeSpan> recorded_runs(const Trace& trace, int32_t device);
// Whether one of them holds all of it.
inline bool in_one_run(const std::vector<TimeSpan>& runs, int64_t start_ns, int64_t end_ns) {
  return RecordedSpans::holds(runs, start_ns, end_ns);
}

}  // namespace llmprof
