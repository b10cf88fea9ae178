// Steps as they would have been without the recorder: what recording costs on this machine is taken out of what a
// replay keeps constant. A step gains by it only what it waited for.
#pragma once

#include "replay/replay.h"
#include "results/call_costs.h"

namespace llmprof::replay {

// By so much more or less than was measured a node of a graph may cost on the GPU, ns: its nodes lay 0.03 to 0.42 us
// further apart than without the recorder, the same for hundreds of launches and then another (docs/results,
// notes-recording.md).
constexpr double kNodeUnsureNs = 200;

// What `llmprof peaks` measured (device/cuda/call_costs.h), as a function of the recorded call. How long a call took as
// it was seen tells how long it takes alone, because what slows one slows the other: a host that is slow just then, and
// caches that hold the program's own data. So a launch is what it was in the measurement where it was seen to take as
// long, linear between the four levels; a graph launch alone hardly depends on its nodes, recorded it takes over a
// microsecond for each.
class RecorderCostModel {
 public:
  // Unknown where the costs of launches, graphs or the GPU are missing. `calls_factor`: so many times what was measured
  // a recorded launch, copy and wait cost in this program.
  explicit RecorderCostModel(const RecorderCosts& costs, double calls_factor = 1);
  bool known() const { return !launch_.empty(); }

  // By how much a call is longer because it is recorded, ns: `inside` of its duration as seen, `beside` before or
  // after.
  struct Cost {
    double inside = 0, beside = 0;
  };
  Cost of_launch(double seen_ns) const;
  Cost of_graph_launch(double seen_ns, uint32_t nodes, bool may_wait) const;
  Cost of_copy() const { return copy_; }
  Cost of_wait() const { return wait_; }
  // By how much later the host goes on behind what it waited for, ns: a copy of the waiting call, or else.
  double wakes_later_ns(Awaited awaited) const { return awaited == Awaited::kOwn ? copy_wakes_ns_ : wait_wakes_ns_; }
  // By how much a kernel begins later behind another one: of a stream, of a graph.
  double kernel_gap_ns() const { return kernel_gap_ns_; }
  double node_gap_ns() const { return node_gap_ns_; }
  // From the end of what lies before a graph on its stream to its first node, and from its last node to what lies
  // behind it, without the recorder. 0 where it was not measured.
  double graph_edge_ns() const { return graph_edge_ns_; }
  // By how much later a graph's first node begins behind what lies before the graph on its stream.
  double graph_begins_later_ns() const { return graph_begins_later_ns_; }
  // From the end of a kernel to the start of the one behind it on a stream that is never empty, by how much sooner
  // nodes of a graph follow each other, and what launching a graph takes the host, all without the recorder. 0 where it
  // was not measured.
  double kernels_apart_ns() const { return kernels_apart_ns_; }
  double nodes_sooner_ns() const { return nodes_sooner_ns_; }
  double graph_launch_ns(double nodes) const { return graph_plain_ns_ + node_plain_ns_ * nodes; }
  // By how much of itself the cost of a launch, of a kernel or of a graph, differed between turns, to
  // either side.
  double unsure_frac(bool graph) const { return unsure_frac_[graph ? 1 : 0]; }

 private:
  struct Level {
    double seen_ns, inside_ns, beside_ns;
  };
  std::vector<Level> launch_;  // by rising seen_ns
  // Of graphs, for one and for each node: alone, and the most that was seen recorded.
  double graph_plain_ns_ = 0, node_plain_ns_ = 0, graph_most_ns_ = 0, node_most_ns_ = 0;
  Cost copy_, wait_;
  double copy_wakes_ns_ = 0, wait_wakes_ns_ = 0;
  double kernel_gap_ns_ = 0, node_gap_ns_ = 0, graph_edge_ns_ = 0, graph_begins_later_ns_ = 0;
  double kernels_apart_ns_ = 0, nodes_sooner_ns_ = 0;
  std::array<double, 2> unsure_frac_{};
};

// Takes it out of every call and every distance between activities.
void take_recorder_out(const Timeline& timeline, const RecorderCostModel& model, Durations& durations,
                       Latencies& latencies);

}  // namespace llmprof::replay
