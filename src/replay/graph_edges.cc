#include "replay/graph_edges.h"

#include <algorithm>

namespace llmprof::replay {
namespace {

constexpr size_t kThroughMost = 256;  // nodes seen through for one activity; what lies behind them is left out

}  // namespace

std::pair<size_t, size_t> GraphEdgesOf::rows_of(uint64_t node) const {
  const auto [begin, end] = std::equal_range(edges_.node.begin(), edges_.node.end(), node);
  return {static_cast<size_t>(begin - edges_.node.begin()), static_cast<size_t>(end - edges_.node.begin())};
}

bool GraphEdgesOf::add(ApiCallId call, std::vector<std::pair<Row, GpuOpId>>& followed) {
  if (edges_.empty()) return false;
  const GpuOps& ops = timeline_.trace.gpu_ops;
  const uint32_t begin = timeline_.launched_begin[call], end = timeline_.launched_begin[call + 1];
  by_node_ = FlatMap(end - begin);
  for (uint32_t i = begin; i < end; ++i) {
    const GpuOpId op = timeline_.launched[i];
    const uint64_t node = ops.graph_node[op];
    const auto [first, last] = rows_of(node);
    if (node == 0 || first == last) return false;
    by_node_.find_or_insert(node, 0) = op;
  }
  for (uint32_t i = begin; i < end; ++i) follow(timeline_.launched[i], ops.graph_node[timeline_.launched[i]], followed);
  return true;
}

void GraphEdgesOf::follow(GpuOpId op, uint64_t node, std::vector<std::pair<Row, GpuOpId>>& followed) {
  const size_t from = followed.size();
  through_.assign(1, node);
  for (size_t at = 0; at < through_.size(); ++at) {
    const auto [begin, end] = rows_of(through_[at]);
    for (size_t row = begin; row < end; ++row) {
      const uint64_t after = edges_.after[row];
      if (after == 0) continue;
      const Row before = by_node_.find(after);
      if (before == kNoRow) {
        if (through_.size() < kThroughMost && std::find(through_.begin(), through_.end(), after) == through_.end())
          through_.push_back(after);
        continue;
      }
      // A loop, or an order that the recording contradicts, is no edge of this launch.
      // Those of a launch are in order of their rows.
      if (before < op) followed.emplace_back(op, before);
    }
  }
  if (through_.size() == 1) return;
  const auto begin = followed.begin() + static_cast<ptrdiff_t>(from);
  std::sort(begin, followed.end());
  followed.erase(std::unique(begin, followed.end()), followed.end());
}

}  // namespace llmprof::replay
