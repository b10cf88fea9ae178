// Streams of one GPU that wait for each other.
#include <map>
#include <tuple>
#include <utility>

#include "replay/what_if.h"

namespace llmprof::replay {
namespace {

// A fork and a join a step bring streams together; who waits more often takes turns.
constexpr int kTurnsMin = 2;

}  // namespace

StreamPairs taking_turns(const Recording& recording) {
  const Trace& trace = recording.trace();
  std::map<std::tuple<StepId, StreamId, StreamId>, int> waits;  // in a step, of one stream for another
  for (GpuOpId op = 0; op < trace.gpu_ops.size(); ++op) {
    const StepId step = trace.gpu_links.step[op];
    if (step == kNoRow || trace.gpu_ops.kind[op] != GpuOpKind::kKernel) continue;
    for (const GpuOpId other : recording.timeline().joined.of(op)) {
      const StreamId from = trace.gpu_ops.stream[op], to = trace.gpu_ops.stream[other];
      const bool kernels = trace.gpu_ops.kind[other] == GpuOpKind::kKernel;
      if (kernels && from != to && trace.gpu_links.step[other] == step && trace.device_of(op) == trace.device_of(other))
        ++waits[{step, from, to}];
    }
  }
  StreamPairs out;
  for (const auto& [of, count] : waits) {
    const auto& [step, from, to] = of;
    const auto back = waits.find({step, to, from});
    if (from < to && count >= kTurnsMin && back != waits.end() && back->second >= kTurnsMin) out.insert({from, to});
  }
  return out;
}

void with_streams_apart(const Recording& recording, Durations& durations, Latencies&) {
  durations.apart = taking_turns(recording);
}

}  // namespace llmprof::replay
