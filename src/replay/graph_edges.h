// Which activities of a graph launch follow which, by the recorded edges of the graph. Nodes that run nothing on the
// GPU (events, empty nodes, graphs in nodes) and activities that are not there are seen through: what follows them
// follows what they follow.
#pragma once

#include <utility>
#include <vector>

#include "base/flat_index.h"
#include "replay/timeline.h"

namespace llmprof::replay {

class GraphEdgesOf {
 public:
  // `timeline` needs launched and launched_begin only.
  explicit GraphEdgesOf(const Timeline& timeline) : timeline_(timeline), edges_(timeline.trace.graph_edges) {}

  // Appends (activity, one that it follows) for the activities of one launch; false, and nothing, if the recording has
  // no edges of its graph.
  bool add(ApiCallId call, std::vector<std::pair<Row, GpuOpId>>& followed);

 private:
  void follow(GpuOpId op, uint64_t node, std::vector<std::pair<Row, GpuOpId>>& followed);
  std::pair<size_t, size_t> rows_of(uint64_t node) const;

  const Timeline& timeline_;
  const GraphEdges& edges_;
  FlatMap by_node_;                // of the launch: activity by node
  std::vector<uint64_t> through_;  // nodes that are seen through for one activity
};

}  // namespace llmprof::replay
