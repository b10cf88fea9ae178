// What the host does between and in CUDA calls.
#include <algorithm>
#include <array>

#include "derive/blocking_launches.h"
#include "replay/what_if.h"

namespace llmprof::replay {

void without_allocations(const Recording& recording, Durations& durations, Latencies&) {
  for (ApiCallId call = 0; call < recording.trace().api_calls.size(); ++call)
    if (recording.kind(call) == ApiKind::kAllocator) durations.call_ns[call] = 0, durations.no_wait[call] = 1;
}

// The driver call below a call of the runtime ends with it.
void with_returning_launches(const Recording& recording, Durations& durations, Latencies&) {
  for (const auto& [call, ns] : blocking_launches(recording.trace()))
    durations.call_ns[call] = std::min(durations.call_ns[call], ns);
}

void without_host_gaps(const Recording& recording, Durations& durations, Latencies&) {
  for (ApiCallId call = 0; call < recording.trace().api_calls.size(); ++call) {
    int64_t& before = durations.before_ns[call];
    if (before >= kLongGapNs && !recording.timeline().lacks_input(call))
      before = std::min(kLongGapNs, recording.dispatch_ns());
  }
}

void with_fast_host(const Recording& recording, Durations& durations, Latencies& latencies) {
  for (ApiCallId call = 0; call < recording.trace().api_calls.size(); ++call)
    if (!recording.timeline().lacks_input(call)) durations.before_ns[call] = 0;
  std::vector<double> calls_ns(latencies.launches.size(), 0), count = calls_ns;  // by place in launches
  for (ApiCallId call = 0; call < recording.trace().api_calls.size(); ++call) {
    for (const GpuOpId op : recording.launched(call)) {
      const size_t place = latencies.launch_place(recording.timeline(), op);
      calls_ns[place] += static_cast<double>(durations.call_ns[call]);
      count[place] += 1;
    }
    if (!recording.waits(call)) durations.call_ns[call] = 0, durations.no_wait[call] = 1;
  }
  // A latency that is counted from the start of a call holds the call.
  for (size_t at = 0; at < count.size(); ++at) {
    Latencies::Launch& launch = latencies.launches[at];
    if (launch.at == 0 && count[at] > 0)
      launch.latency.ns = std::max(0.0, launch.latency.ns - calls_ns[at] / count[at]);
  }
}

}  // namespace llmprof::replay
