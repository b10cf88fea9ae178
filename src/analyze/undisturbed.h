// Step times without what recording costs: those of steps of which nothing was recorded while CUPTI was out of the
// process, else recorded steps replayed without the costs that `llmprof peaks` measured on this machine, else recorded
// steps as they are.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "analyze/groups.h"
#include "analyze/recording_changes.h"
#include "derive/host_pace.h"
#include "replay/replay.h"
#include "results/report.h"
#include "trace/trace.h"

namespace llmprof {

// Every completely recorded step replayed, as it was and without the recorder.
struct ReplayedSteps {
  std::vector<replay::StepTime> steps;  // in order of time
  CallsFactor calls;
};
// `costs`: of the recorder that made the recording, as measured on its machine; empty where they are not known. Where
// the program ran with and without the recorder, what its calls cost is fitted to that.
ReplayedSteps replay_steps(const Trace& trace, const RecorderCosts& costs, const HostPace& host_pace);

class UndisturbedTimes {
 public:
  // `costs`: those that `replayed` is by.
  UndisturbedTimes(const Trace& trace, const Groups& groups, const ReplayedSteps& replayed, const RecorderCosts& costs,
                   const HostPace& host_pace);

  // One for each stage with steps of serving, in order of the stage table. None for a recording of another tool: there
  // is nothing to take out.
  const std::vector<UndisturbedRecord>& rows() const { return rows_; }
  // The window of a step without the recorder, ns; as recorded where nothing is known. Steps that ran with CUPTI in the
  // process while nothing was recorded have no time: neither are they the program alone, nor can they be replayed.
  std::optional<double> window_ns(StepId step) const;
  StepTimeSource source(StepId step) const { return sources_[step]; }
  // How much that window may be off for what is not known of the recorder's cost; 0 where nothing was taken out.
  double unsure_ns(StepId step) const { return unsure_ns_[step]; }

 private:
  std::vector<UndisturbedRecord> rows_;
  std::vector<double> window_ns_;        // by step; below 0: none
  std::vector<double> unsure_ns_;        // by step
  std::vector<StepTimeSource> sources_;  // by step
};

// By how much the GPU waits longer for the host in a stage because it is recorded, ns, beside idle time whose cause is
// the profiler: that is part of the cost, and counted by itself. 0 where the time without the recorder is not known.
double recorder_cost_ns(const StageGroup& group, const StageTiming& timing);

}  // namespace llmprof
