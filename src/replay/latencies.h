// What lies between the moment at which something may begin and its beginning. Fitted per recording, as medians over
// those cases in which only one dependency can have been the last: an activity whose stream was idle when its launch
// was called follows the launch; one whose stream was busy for long after the launch follows the activity before it.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <unordered_map>

#include "replay/timeline.h"

namespace llmprof::replay {

struct Latency {
  double ns = 0;
  int64_t samples = 0;  // 0: not seen, nothing is known of it
};

struct Latencies {
  // From the launch call to the activity's start; counted from the call's end where that varies less (the doorbell is
  // rung at the end), else from its start.
  std::array<Latency, kStartKinds> launch{};
  std::array<bool, kStartKinds> from_end{};
  // From the end of the activity before on the stream to the start; by kinds of both. Below 0 where kernels overlap.
  std::array<std::array<Latency, kStartKinds>, kStartKinds> behind{};
  // From the end of an activity that the stream was told to wait for to the start.
  Latency joined;
  // The same between two nodes of a graph, by both nodes' ids; and of all, for those that were not learned from.
  std::unordered_map<uint64_t, Latency> edges;
  Latency any_edge;
  // By call: so much further apart than `edges` says lie the nodes of its launch, ns; as seen of the launches of the
  // same graph nearest in time that were learned from. Nodes were seen 0.10 or 0.45 us apart for spells of some
  // launches, whatever records them.
  std::vector<double> pace;
  // From the end of what a blocking call waited for to its return, and what it takes where nothing is to be waited for.
  // Those that free memory take their own time for it, each as recorded.
  std::array<Latency, kAwaitedCount> woken{}, unblocked{};

  double launch_ns(StartKind kind) const { return launch[static_cast<size_t>(kind)].ns; }
  double behind_ns(const Timeline& timeline, GpuOpId before, GpuOpId op) const;
  double joined_ns(const Timeline& timeline, GpuOpId before, GpuOpId op) const {
    return joined.samples != 0 ? joined.ns : behind_ns(timeline, before, op);
  }
  double edge_ns(const Timeline& timeline, GpuOpId before, GpuOpId op) const;
};

uint64_t edge_key(const Timeline& timeline, GpuOpId before, GpuOpId op);

// `used(op)`, `waited(call)`: which activities and calls to learn from.
Latencies fit(const Timeline& timeline, const std::function<bool(GpuOpId)>& used,
              const std::function<bool(ApiCallId)>& waited);

// The last to end, as recorded, of what each call waits for; kNoRow if there is nothing.
std::vector<GpuOpId> last_awaited(const Timeline& timeline);

}  // namespace llmprof::replay
