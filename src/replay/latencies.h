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
  // rung at the end), else from its start. By kind of activity; behind these each graph by itself: of a large one the
  // first nodes may run while the call goes on for the others, and after a certain part of the call, however long it
  // is.
  struct Launch {
    Latency latency;
    double at = 0;  // what it is counted from: 0 the call's start, 1 its end, or a part of it
    int64_t from(int64_t call_start_ns, int64_t call_end_ns) const {
      return at == 0   ? call_start_ns
             : at == 1 ? call_end_ns
                       : call_start_ns + static_cast<int64_t>(at * static_cast<double>(call_end_ns - call_start_ns));
    }
  };
  std::vector<Launch> launches = std::vector<Launch>(kStartKinds);
  std::vector<uint32_t> of_graph;  // by call, its place in `launches`; 0 where it is that of the kind
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

  size_t launch_place(const Timeline& timeline, GpuOpId first) const {
    const ApiCallId call = timeline.trace.gpu_links.api[first];
    const bool known = timeline.is_graph_node(first) && call < of_graph.size() && of_graph[call] != 0;
    return known ? of_graph[call] : static_cast<size_t>(timeline.kinds[first]);
  }
  const Launch& launch_of(const Timeline& timeline, GpuOpId first) const {
    return launches[launch_place(timeline, first)];
  }
  const Launch& of_kind(StartKind kind) const { return launches[static_cast<size_t>(kind)]; }
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
