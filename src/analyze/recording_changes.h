// Where recording began or ended between two steps of a stage: the same program, the same process and the same moment
// with the recorder and without it. So a change tells what recording costs here, where the costs that `llmprof peaks`
// measured are those of another program.
#pragma once

#include <vector>

#include "analyze/step_recording.h"
#include "derive/host_pace.h"
#include "replay/replay.h"
#include "trace/trace.h"

namespace llmprof {

// What some steps in a row took: of ranges that hold several (an encoder, and the prompt behind it), those of one range
// are one time, for where nothing was recorded nobody can part them.
struct StepRun {
  bool recorded = false;
  std::vector<std::vector<StepId>> times;
};

// Of one stage, in order of time, recorded ones and such without CUPTI by turns.
struct StageRuns {
  int32_t device = 0;
  StringId stage{};
  std::vector<StepRun> runs;
};
// `replays`: by step, whether replay gives it back; recorded ones that it does not are left out. So are steps of a slow
// CPU, where there are enough of the stage at full pace.
std::vector<StageRuns> stage_runs(const Trace& trace, const std::vector<StepRecording>& recordings,
                                  const std::vector<uint8_t>& replays, const HostPace& host_pace);

// A replay that misses a recorded step by more says nothing of the step without the recorder.
bool replays_step(const replay::StepTime& time);

// Replayed steps over the unrecorded ones next to them, less 1, ten or fewer to either side of each change, three at
// least; the median of the stage's changes. `without_ns`: by step, of recorded ones as replayed.
std::optional<double> disagreement(const StageRuns& stage, const std::vector<double>& without_ns);

// So many times what was measured on the machine recorded calls cost in this program.
struct CallsFactor {
  double factor = 1, error = 0;  // standard error
  int64_t changes = 0;           // that it comes from; 0: none, and the factor is 1
};
// `once_ns`, `twice_ns`: by step, of recorded ones as replayed when calls cost what was measured, and twice that; of
// others what they took. What is measured is weighed against the usual 1, for a host that is a virtual machine may have
// changed its pace just then: how much stretches of steps differ that were recorded alike says how likely that is.
CallsFactor calls_factor(const std::vector<StageRuns>& stages, const std::vector<double>& once_ns,
                         const std::vector<double>& twice_ns);

}  // namespace llmprof
