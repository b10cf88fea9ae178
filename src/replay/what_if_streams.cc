// Streams of one GPU that wait for each other, and copies that wait for each other in one stream.
#include <algorithm>
#include <map>
#include <set>
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

std::set<StreamId> copying_both_ways(const Trace& trace) {
  std::map<StreamId, std::pair<bool, bool>> ways;  // to the GPU, to the host; in steps
  std::set<StreamId> computing;
  for (GpuOpId op = 0; op < trace.gpu_ops.size(); ++op) {
    if (trace.gpu_ops.kind[op] == GpuOpKind::kKernel) {
      computing.insert(trace.gpu_ops.stream[op]);
      continue;
    }
    auto& [up, down] = ways[trace.gpu_ops.stream[op]];
    up |= trace.gpu_ops.path[op] == CopyPath::kHostToDevice;
    down |= trace.gpu_ops.path[op] == CopyPath::kDeviceToHost;
  }
  std::set<StreamId> out;
  for (const auto& [stream, of] : ways)
    if (of.first && of.second && computing.count(stream) == 0) out.insert(stream);
  return out;
}

void with_copies_apart(const Recording& recording, Durations& durations, Latencies&) {
  const std::set<StreamId> streams = copying_both_ways(recording.trace());
  if (streams.empty()) return;
  const GpuOps& ops = recording.trace().gpu_ops;
  CopyOrder& order = durations.copies;
  order.behind = recording.timeline().on_stream;
  order.other_way.assign(ops.size(), kNoRow);
  struct Last {
    GpuOpId up = kNoRow, down = kNoRow;
  };
  std::map<StreamId, Last> last;
  for (ApiCallId call = 0; call < recording.trace().api_calls.size(); ++call) {
    for (const GpuOpId op : recording.launched(call)) {
      if (streams.count(ops.stream[op]) == 0) continue;
      Last& of = last[ops.stream[op]];
      const bool down = ops.path[op] == CopyPath::kDeviceToHost;
      order.behind.set(op, down ? of.down : of.up);
      order.other_way[op] = down ? of.up : of.down;
      (down ? of.down : of.up) = op;
    }
  }
}

// A pass that waits for another one in its midst needs what that computes.
std::string one_pass_forbidden(const Recording& recording, const Durations&, std::span<const StepId> steps) {
  const std::vector<int64_t>& times = recording.kernel_times()[static_cast<size_t>(KernelChange::kOnePass)];
  if (times.empty()) return {};
  const Trace& trace = recording.trace();
  const std::vector<uint64_t>& weights = trace.library_calls.weights;
  if (std::all_of(weights.begin(), weights.end(), [](uint64_t address) { return address == 0; }))
    return "the recording does not say which weights products read, so nothing is joined";
  const std::set<StepId> of_steps(steps.begin(), steps.end());
  const auto stays = [&](GpuOpId op) { return times[op] > 0; };
  const auto goes = [&](GpuOpId op) { return times[op] == 0; };
  for (GpuOpId op = 0; op < trace.gpu_ops.size(); ++op) {
    const StepId step = trace.gpu_links.step[op];
    if (times[op] == kStays || of_steps.count(step) == 0) continue;
    for (const GpuOpId other : recording.timeline().joined.of(op))
      if (trace.gpu_links.step[other] == step && ((stays(op) && goes(other)) || (goes(op) && stays(other))))
        return "its passes wait for each other in their midst";
  }
  return {};
}

void with_streams_apart(const Recording& recording, Durations& durations, Latencies&) {
  durations.apart = taking_turns(recording);
}

}  // namespace llmprof::replay
