// Stands for libcuda.so.1 in cuda_client. As strict as the real one: arrays of the right size, data of edges that have
// some.
#include "fake_graphs.h"

#include <cstddef>
#include <utility>
#include <vector>

#define EXPORT __attribute__((visibility("default")))

namespace {

struct Node {
  void* handle;
  void* inner;
};
struct Edge {
  void *from, *to;
  bool with_data;
};
struct Graph {
  std::vector<Node> nodes;
  std::vector<Edge> edges;
};

constexpr int kInvalidValue = 1, kLossyQuery = 911;

std::vector<Graph*>& graphs() {
  static std::vector<Graph*> all;
  return all;
}

void* handle_of(uint64_t node) { return reinterpret_cast<void*>(node); }

}  // namespace

extern "C" {

__attribute__((weak)) void fake_graph_uploaded(uint64_t graph);

EXPORT int cuThreadExchangeStreamCaptureMode(int* mode) {
  static thread_local int current = 0;
  std::swap(*mode, current);
  return 0;
}
EXPORT int cuStreamCreate(void** stream, unsigned) {
  *stream = new char;
  return 0;
}
EXPORT int cuStreamSynchronize(void*) { return 0; }
EXPORT int cuStreamDestroy_v2(void* stream) {
  delete static_cast<char*>(stream);
  return 0;
}
EXPORT int cuGraphUpload(void* executable, void*) {
  fake_graph_uploaded(reinterpret_cast<uintptr_t>(executable));
  return 0;
}

EXPORT void* fake_graph() {
  graphs().push_back(new Graph());
  return graphs().back();
}
EXPORT void fake_graph_has(void* graph, uint64_t node, void* inner) {
  static_cast<Graph*>(graph)->nodes.push_back({handle_of(node), inner});
}
EXPORT void fake_graph_follows(void* graph, uint64_t node, uint64_t after, bool with_data) {
  static_cast<Graph*>(graph)->edges.push_back({handle_of(after), handle_of(node), with_data});
}

EXPORT int cuGraphGetNodes(void* graph, void** nodes, size_t* count) {
  const Graph& found = *static_cast<Graph*>(graph);
  if (nodes == nullptr) {
    *count = found.nodes.size();
    return 0;
  }
  for (size_t i = 0; i < *count && i < found.nodes.size(); ++i) nodes[i] = found.nodes[i].handle;
  return 0;
}

EXPORT int cuGraphGetEdges_v2(void* graph, void** from, void** to, void* data, size_t* count) {
  const Graph& found = *static_cast<Graph*>(graph);
  if ((from == nullptr) != (to == nullptr)) return kInvalidValue;
  if (from == nullptr) {
    *count = found.edges.size();
    return 0;
  }
  for (size_t i = 0; i < *count && i < found.edges.size(); ++i) {
    if (found.edges[i].with_data && data == nullptr) return kLossyQuery;
    from[i] = found.edges[i].from;
    to[i] = found.edges[i].to;
    if (data != nullptr) static_cast<uint64_t*>(data)[i] = found.edges[i].with_data ? 1 : 0;
  }
  return 0;
}

EXPORT int cuGraphChildGraphNodeGetGraph(void* node, void** graph) {
  for (const Graph* one : graphs())
    for (const Node& other : one->nodes)
      if (other.handle == node && other.inner != nullptr) {
        *graph = other.inner;
        return 0;
      }
  return kInvalidValue;
}

}  // extern "C"
