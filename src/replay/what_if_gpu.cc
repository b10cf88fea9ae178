// What the GPU does.
#include <algorithm>

#include "replay/what_if.h"

namespace llmprof::replay {

void with_fast_gpu(const Recording&, Durations& durations, Latencies& latencies) {
  std::fill(durations.op_ns.begin(), durations.op_ns.end(), 0);
  for (std::array<Latency, kStartKinds>& before : latencies.behind)
    for (Latency& latency : before) latency.ns = 0;
  latencies.joined.ns = latencies.any_edge.ns = 0;
  for (auto& [edge, latency] : latencies.edges) latency.ns = 0;
  std::fill(latencies.pace.begin(), latencies.pace.end(), 0);
}

// Hidden or not, what a collective brings is there once the last GPU has begun: that wait stays (rank-skew).
void without_communication(const Recording& recording, Durations& durations, Latencies&) {
  const Trace& trace = recording.trace();
  for (Row op = 0; op < trace.gpu_ops.size(); ++op)
    if (trace.gpu_links.category[op] == Category::kCommunication) durations.op_ns[op] = 0;
}

void with_even_ranks(const Recording& recording, Durations& durations, Latencies&) {
  durations.meet = false;
  for (const Meeting& meeting : recording.timeline().meetings)
    for (const GpuOpId op : meeting)
      durations.op_ns[op] = std::max<int64_t>(0, durations.op_ns[op] - waited_ns(recording.trace(), meeting, op));
}

}  // namespace llmprof::replay
