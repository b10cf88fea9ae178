// Copies between the host and the GPU, with the calls that make them: a copy to the host and the wait for it are one
// call where the memory is pageable, and go together.
#include <algorithm>
#include <cmath>

#include "replay/what_if.h"

namespace llmprof::replay {

void without_copies(const Recording& recording, Durations& durations, Latencies&) {
  const GpuOps& ops = recording.trace().gpu_ops;
  for (ApiCallId call = 0; call < recording.trace().api_calls.size(); ++call) {
    const LaunchedOps launched = recording.launched(call);
    if (launched.size() != 1 || recording.ends_step(call)) continue;
    const CopyPath path = ops.path[launched[0]];
    if (path == CopyPath::kHostToDevice || path == CopyPath::kDeviceToHost) take_away(recording, call, durations);
  }
}

namespace {

// What pinned memory gives on PCIe 4.
constexpr double kPinnedBytesPerNs = 25;

}  // namespace

void with_pinned_copies(const Recording& recording, Durations& durations, Latencies&) {
  const GpuOps& ops = recording.trace().gpu_ops;
  const Timeline& timeline = recording.timeline();
  const ApiCallId calls = static_cast<ApiCallId>(recording.trace().api_calls.size());
  std::vector<ApiCallId> behind(calls, kNoRow);  // the next call of the thread
  for (ApiCallId call = 0; call < calls; ++call)
    if (timeline.before[call] != kNoRow) behind[timeline.before[call]] = call;
  const auto known = [](double rate) { return rate > 0 ? rate : kPinnedBytesPerNs; };
  const double in_rate = known(recording.rates().to_device), out_rate = known(recording.rates().to_host);
  for (ApiCallId call = 0; call < calls; ++call) {
    const LaunchedOps launched = recording.launched(call);
    if (launched.size() != 1 || ops.host_memory[launched[0]] != HostMemory::kPageable) continue;
    const GpuOpId op = launched[0];
    const bool in = ops.path[op] == CopyPath::kHostToDevice;
    if ((!in && ops.path[op] != CopyPath::kDeviceToHost) || ops.bytes[op] < 0) continue;
    const double least_ns = static_cast<double>(ops.bytes[op]) / (in ? in_rate : out_rate);
    durations.op_ns[op] = std::min(durations.op_ns[op], static_cast<int64_t>(std::llround(least_ns)));
    if (!in) continue;  // what is read is waited for all the same
    durations.no_wait[call] = 1;
    durations.call_ns[call] = std::min(durations.call_ns[call], recording.dispatch_ns());
    const ApiCallId next = behind[call];
    if (next != kNoRow && recording.waits(next) && recording.launched(next).empty() && !recording.ends_step(next))
      take_away(recording, next, durations);
  }
}

}  // namespace llmprof::replay
