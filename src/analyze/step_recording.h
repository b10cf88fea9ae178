// How each step was recorded, as far as that decides what its time says of the program: its kernels were recorded, or
// nothing was, and then with CUPTI in the process or out of it. Only without CUPTI a program runs as if it were alone.
#pragma once

#include <vector>

#include "derive/recorded_spans.h"
#include "results/recording.h"
#include "trace/trace.h"

namespace llmprof {

class HostPace;
class UndisturbedTimes;

// When CUPTI was out of the process. Where kernels were recorded at no time (light mode, a program on a CPU) it never
// came.
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

enum class StepRecording : uint8_t {
  kNeither,   // warm-up, at a window's edge, behind a step that was recorded otherwise, nodes of graphs missing
  kHostOnly,  // launched nothing: there is nothing of it to record
  kRecorded,  // with all its kernels
  kAttached,  // nothing of it, with CUPTI in the process
  kAlone      // nothing of it, and CUPTI was out
};
// By row of steps.
std::vector<StepRecording> step_recordings(const Trace& trace, const CuptiAway& away);

// Steps whose times can be compared with those that were recorded otherwise: all of a stage, but for those of a slow
// CPU where enough recorded and enough unrecorded ones were at full pace.
class StepsAtPace {
 public:
  StepsAtPace(const Trace& trace, const std::vector<StepRecording>& recordings, const HostPace& host_pace);
  bool has(StepId step) const { return has_[step] != 0; }

 private:
  std::vector<uint8_t> has_;  // by step
};

// Every step with how it was recorded, in order of time; the first 20,000.
std::vector<StepRecord> list_steps(const Trace& trace, const UndisturbedTimes& undisturbed, const HostPace& host_pace);

}  // namespace llmprof
