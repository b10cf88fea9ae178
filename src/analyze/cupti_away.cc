#include "analyze/cupti_away.h"

#include <algorithm>

namespace llmprof {

CuptiAway::CuptiAway(const Trace& trace) {
  const Recorded& recorded = trace.recorded;
  for (Row row = 0; row < recorded.size(); ++row) {
    never_came_ &= recorded.level[row] < RecordingLevel::kDefault;
    if (trace.text(recorded.reason[row]) == "detached")
      spans_.push_back({recorded.start_ns[row], recorded.start_ns[row] + recorded.dur_ns[row]});
  }
  std::sort(spans_.begin(), spans_.end(), [](const TimeSpan& a, const TimeSpan& b) { return a.start_ns < b.start_ns; });
}

}  // namespace llmprof
