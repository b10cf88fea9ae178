#include "capture/inject/cupti/graph_nodes.h"

#include "capture/inject/inject.h"
#include "capture/inject/threads/thread_log.h"

namespace llmprof::inject {

void graph_node_seen(const nvidia::CuptiLibrary& api, bool cloned, const cupti::ResourceData& resource) {
  const cupti::GraphData* graph = static_cast<const cupti::GraphData*>(resource.descriptor);
  if (graph == nullptr || graph->node == nullptr) return;
  spool::GraphNode record;
  if (api.cuptiGetGraphNodeId(graph->node, &record.node) != cupti::kSuccess) return;
  if (cloned) {
    if (graph->original_node == nullptr ||
        api.cuptiGetGraphNodeId(graph->original_node, &record.original) != cupti::kSuccess)
      return;
  } else {
    record.call = current_library_call();
    if (record.call == 0) return;  // an instantiated copy without an origin in the spool has no shape either
  }
  SpoolAccess access;
  if (access.writer() != nullptr) access.writer()->add(record);
}

}  // namespace llmprof::inject
