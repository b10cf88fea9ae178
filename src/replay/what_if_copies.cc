// Copies between the host and the GPU, with the calls that make them: a copy to the host and the wait for it are one
// call where the memory is pageable, and go together.
#include "replay/what_if.h"

namespace llmprof::replay {

void without_copies(const Recording& recording, Durations& durations, Latencies&) {
  const GpuOps& ops = recording.trace().gpu_ops;
  for (ApiCallId call = 0; call < recording.trace().api_calls.size(); ++call) {
    const std::span<const GpuOpId> launched = recording.launched(call);
    if (launched.size() != 1 || recording.ends_step(call)) continue;
    const CopyPath path = ops.path[launched[0]];
    if (path == CopyPath::kHostToDevice || path == CopyPath::kDeviceToHost) take_away(recording, call, durations);
  }
}

}  // namespace llmprof::replay
