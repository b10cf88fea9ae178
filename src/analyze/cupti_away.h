// When CUPTI was out of the process: only then a program runs as if it were alone. Where it never left, unrecorded
// steps may be slowed too.
#pragma once

#include <vector>

#include "derive/recorded_spans.h"
#include "trace/trace.h"

namespace llmprof {

class CuptiAway {
 public:
  explicit CuptiAway(const Trace& trace);
  bool ever() const { return !spans_.empty(); }
  bool throughout(int64_t start_ns, int64_t end_ns) const {
    return never_came_ || RecordedSpans::holds(spans_, start_ns, end_ns);
  }

 private:
  std::vector<TimeSpan> spans_;  // sorted, disjoint
  bool never_came_ = true;
};

}  // namespace llmprof
