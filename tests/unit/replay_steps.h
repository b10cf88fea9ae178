// The steps of a recording, replayed as they were and, where `costs` of the recorder are given, without it.
#pragma once

#include <vector>

#include "replay/replay.h"
#include "replay/undisturbed.h"

namespace llmprof::replay {

inline std::vector<StepTime> replay_steps(const Trace& trace, const RecorderCosts* costs = nullptr) {
  const StepReplay replay(trace);
  std::vector<StepTime> steps = replay.as_recorded();
  if (costs == nullptr) return steps;
  const std::vector<int64_t> without_ns = replay.without_recorder(RecorderCostModel(*costs));
  for (size_t i = 0; i < steps.size(); ++i) steps[i].undisturbed_ns = without_ns[i];
  return steps;
}

}  // namespace llmprof::replay
