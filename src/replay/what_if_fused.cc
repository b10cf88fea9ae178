// Kernels that pass over memory, one behind the other on a stream, as one kernel.
#include <algorithm>
#include <map>
#include <vector>

#include "replay/what_if.h"

namespace llmprof::replay {

void with_fused_passes(const Recording& recording, Durations& durations, Latencies&) {
  const Trace& trace = recording.trace();
  std::vector<ApiCallId> launch(trace.gpu_ops.size(), kNoRow);
  for (ApiCallId call = 0; call < trace.api_calls.size(); ++call)
    for (const GpuOpId op : recording.launched(call)) launch[op] = call;
  const auto passes = [&](GpuOpId op) {
    return durations.gone[op] == 0 && trace.gpu_ops.kind[op] == GpuOpKind::kKernel &&
           is_pass_over_memory(trace.gpu_links.category[op]);
  };
  // The longest of a run stays: it has to bring as much to and from memory as any of them. The one that is launched
  // first stands for all.
  const auto fuse = [&](const std::vector<GpuOpId>& run) {
    for (size_t i = 1; i < run.size(); ++i) {
      const GpuOpId op = run[i];
      durations.op_ns[run[0]] = std::max(durations.op_ns[run[0]], durations.op_ns[op]);
      if (recording.launched(launch[op]).size() == 1)
        take_away(recording, launch[op], durations);
      else
        durations.gone[op] = 1;
    }
  };
  struct Run {
    std::vector<GpuOpId> ops;
    bool attention = false;  // a softmax among them
  };
  std::map<StreamId, Run> runs;
  const auto close = [&](Run& run) {
    if (!run.attention) fuse(run.ops);
    run = {};
  };
  for (GpuOpId op = 0; op < trace.gpu_ops.size(); ++op) {
    Run& run = runs[trace.gpu_ops.stream[op]];
    const StepId step = trace.gpu_links.step[op];
    if (!run.ops.empty() && trace.gpu_links.step[run.ops.front()] != step) close(run);
    if (!passes(op) || launch[op] == kNoRow || step == kNoRow) {
      close(run);
      continue;
    }
    run.ops.push_back(op);
    run.attention |= trace.gpu_links.category[op] == Category::kSoftmax;
  }
  for (auto& [stream, run] : runs) close(run);
}

}  // namespace llmprof::replay
