// What the host does between and in CUDA calls.
#include <algorithm>
#include <array>

#include "replay/what_if.h"

namespace llmprof::replay {

void without_allocations(const Recording& recording, Durations& durations, Latencies&) {
  for (ApiCallId call = 0; call < recording.trace().api_calls.size(); ++call)
    if (recording.kind(call) == ApiKind::kAllocator) durations.call_ns[call] = 0, durations.no_wait[call] = 1;
}

void without_host_gaps(const Recording& recording, Durations& durations, Latencies&) {
  for (int64_t& before : durations.before_ns)
    if (before >= kLongGapNs) before = std::min(kLongGapNs, recording.dispatch_ns());
}

void with_fast_host(const Recording& recording, Durations& durations, Latencies& latencies) {
  std::fill(durations.before_ns.begin(), durations.before_ns.end(), 0);
  std::array<double, kStartKinds> calls_ns{}, count{};
  for (ApiCallId call = 0; call < recording.trace().api_calls.size(); ++call) {
    for (const GpuOpId op : recording.launched(call)) {
      const size_t kind = static_cast<size_t>(recording.timeline().kinds[op]);
      calls_ns[kind] += static_cast<double>(durations.call_ns[call]);
      count[kind] += 1;
    }
    if (!recording.waits(call)) durations.call_ns[call] = 0, durations.no_wait[call] = 1;
  }
  // A latency that is counted from the start of a call holds the call.
  for (size_t kind = 0; kind < kStartKinds; ++kind)
    if (!latencies.from_end[kind] && count[kind] > 0)
      latencies.launch[kind].ns = std::max(0.0, latencies.launch[kind].ns - calls_ns[kind] / count[kind]);
}

}  // namespace llmprof::replay
