#include "capture/inject/cupti/graph_nodes.h"

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <type_traits>

#include "capture/inject/inject.h"
#include "capture/inject/threads/reentry_guard.h"
#include "capture/inject/threads/thread_log.h"

namespace llmprof::inject {
namespace {

constexpr uint32_t kGraphNode = 4;  // CU_GRAPH_NODE_TYPE_GRAPH: a node that is a graph
constexpr int kDepthMax = 8;        // of graphs in nodes of graphs

// An array that grows without exceptions; false where there is no memory.
template <class T>
struct Grown {
  static_assert(std::is_trivially_copyable_v<T>);
  T* data;
  size_t size, capacity;

  bool add(const T& value) { return (size < capacity || resize(capacity == 0 ? 256 : 2 * capacity)) && put(value); }
  bool resize(size_t places) {
    T* const moved = static_cast<T*>(std::realloc(data, places * sizeof(T)));
    if (moved == nullptr) return false;
    data = moved;
    capacity = places;
    return true;
  }
  void release() {
    std::free(data);
    *this = {};
  }

 private:
  bool put(const T& value) {
    data[size++] = value;
    return true;
  }
};
template <class T>
struct Scratch : Grown<T> {
  Scratch() : Grown<T>{} {}
  ~Scratch() { std::free(this->data); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
};

struct Copy {
  const void* original;
  const void* copy;
  uint64_t id;     // of the copy
  uint32_t order;  // among the copies seen
  uint32_t type;
};

// Of the call that this thread is in.
struct Instantiation {
  bool under_way;
  bool incomplete;
  Grown<Copy> copies;
};
constinit thread_local Instantiation instantiation{};

std::atomic<uint64_t> edges_written{0};

struct Driver {
  using Nodes = int(void* graph, void** nodes, size_t* count);
  using Edges = int(void* graph, void** from, void** to, void* data, size_t* count);
  using EdgesBefore12_3 = int(void* graph, void** from, void** to, size_t* count);
  using Child = int(void* node, void** graph);
  Nodes* nodes = nullptr;
  Edges* edges = nullptr;
  EdgesBefore12_3* plain_edges = nullptr;
  Child* child = nullptr;

  bool open() {
    void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (library == nullptr) return false;
    nodes = reinterpret_cast<Nodes*>(dlsym(library, "cuGraphGetNodes"));
    edges = reinterpret_cast<Edges*>(dlsym(library, "cuGraphGetEdges_v2"));
    plain_edges = reinterpret_cast<EdgesBefore12_3*>(dlsym(library, "cuGraphGetEdges"));
    child = reinterpret_cast<Child*>(dlsym(library, "cuGraphChildGraphNodeGetGraph"));
    return nodes != nullptr && (edges != nullptr || plain_edges != nullptr);
  }
  bool get_edges(void* graph, void** from, void** to, void* data, size_t* count) const {
    return (edges != nullptr ? edges(graph, from, to, data, count) : plain_edges(graph, from, to, count)) == 0;
  }
};

// The edges of one instantiated graph, between the copies of its nodes.
class EdgeReader {
 public:
  EdgeReader(const Driver& driver, Grown<Copy>& copies) : driver_(driver), copies_(copies) {
    std::sort(copies.data, copies.data + copies.size, [](const Copy& a, const Copy& b) {
      return a.original != b.original ? a.original < b.original : a.order < b.order;
    });
  }

  // False if something of it is not known, or there is too much of it. `entry`: what its first nodes begin after;
  // `ends`: receives its last nodes.
  bool read(void* graph, uint64_t entry, int depth, Scratch<uint64_t>& ends) {
    Scratch<void*> nodes;
    size_t count = 0;
    if (depth > kDepthMax || driver_.nodes(graph, nullptr, &count) != 0 || count > kGraphEdgesMax) return false;
    if (count == 0) return ends.add(entry);
    if (!nodes.resize(count) || driver_.nodes(graph, nodes.data, &count) != 0) return false;
    nodes.size = count;
    std::sort(nodes.data, nodes.data + count);
    Scratch<Place> places;
    Scratch<uint64_t> last;  // of each node: itself, or of the graph in it
    for (size_t i = 0; i < count; ++i) {
      const Copy* const copy = copy_of(nodes.data[i]);
      if (copy == nullptr || !places.add({copy->id, last.size, 0, false, false})) return false;
      void* inner = nullptr;
      if (copy->type == kGraphNode && driver_.child != nullptr && driver_.child(nodes.data[i], &inner) == 0) {
        if (!read(inner, copy->id, depth + 1, last)) return false;
      } else if (!last.add(copy->id)) {
        return false;
      }
      places.data[i].last_end = last.size;
    }
    if (!add_edges(graph, nodes, places, last)) return false;
    for (size_t i = 0; i < count; ++i) {
      const Place& place = places.data[i];
      if (!place.has_before && !add({place.id, entry})) return false;
      for (size_t l = place.last_begin; !place.has_behind && l < place.last_end; ++l)
        if (!ends.add(last.data[l])) return false;
    }
    return true;
  }

  const Scratch<spool::GraphEdge>& found() const { return found_; }

 private:
  struct Place {
    uint64_t id;
    size_t last_begin, last_end;
    bool has_before, has_behind;
  };

  bool add(const spool::GraphEdge& edge) { return found_.size < kGraphEdgesMax && found_.add(edge); }

  bool add_edges(void* graph, const Scratch<void*>& nodes, Scratch<Place>& places, const Scratch<uint64_t>& last) {
    size_t count = 0;
    if (!driver_.get_edges(graph, nullptr, nullptr, nullptr, &count) || count > kGraphEdgesMax) return false;
    if (count == 0) return true;
    Scratch<void*> from, to;
    Scratch<uint64_t> data;  // CUgraphEdgeData, 8 bytes: without it edges that have some are refused
    if (!from.resize(count) || !to.resize(count) || !data.resize(count) ||
        !driver_.get_edges(graph, from.data, to.data, data.data, &count))
      return false;
    const auto place_of = [&](void* node) -> Place* {
      void** const at = std::lower_bound(nodes.data, nodes.data + nodes.size, node);
      return at != nodes.data + nodes.size && *at == node ? places.data + (at - nodes.data) : nullptr;
    };
    for (size_t i = 0; i < count; ++i) {
      Place* const before = place_of(from.data[i]);
      Place* const behind = place_of(to.data[i]);
      if (before == nullptr || behind == nullptr) return false;
      before->has_behind = behind->has_before = true;
      for (size_t l = before->last_begin; l < before->last_end; ++l)
        if (!add({behind->id, last.data[l]})) return false;
    }
    return true;
  }

  // The copy in the executable graph: of a copy of a copy, the last.
  const Copy* copy_of(const void* node) const {
    const Copy* found = nullptr;
    for (int hop = 0; hop < kDepthMax; ++hop) {
      const Copy* const begin = copies_.data;
      const Copy* const behind = std::upper_bound(begin, begin + copies_.size, node,
                                                  [](const void* n, const Copy& c) { return n < c.original; });
      if (behind == begin || (behind - 1)->original != node) break;
      found = behind - 1;
      node = found->copy;
    }
    return found;
  }

  const Driver& driver_;
  const Grown<Copy>& copies_;
  Scratch<spool::GraphEdge> found_;
};

void write_edges(const Scratch<spool::GraphEdge>& edges) {
  constexpr size_t kAtOnce = 1024;  // the spool's lock is given back between
  for (size_t from = 0; from < edges.size; from += kAtOnce) {
    SpoolAccess access;
    if (access.writer() == nullptr) return;
    for (size_t i = from; i < edges.size && i < from + kAtOnce; ++i) access.writer()->add(edges.data[i]);
  }
}

void note_too_many() {
  note("recorder-note", "how the nodes of a CUDA graph follow each other is not recorded: more than 1048576 edges");
}

void read_edges(void* graph) {
  ReentryGuard guard;
  if (guard.nested()) return;
  Driver driver;
  if (!driver.open()) return;
  EdgeReader reader(driver, instantiation.copies);
  Scratch<uint64_t> ends;
  if (!reader.read(graph, 0, 0, ends)) return;
  // Threads that make graphs at the same moment may both find room: by that much the bound is soft.
  const uint64_t written = edges_written.load(std::memory_order_relaxed);
  if (written + reader.found().size > kGraphEdgesMax) return note_too_many();
  edges_written.store(written + reader.found().size, std::memory_order_relaxed);
  write_edges(reader.found());
}

void place_node(uint64_t node) {
  ThreadLog* const log = thread_log();
  const Id stack = log != nullptr ? python_stack_id(*log, FramesOf::kModels) : 0;
  if (stack == 0) return;
  SpoolAccess access;
  if (access.writer() != nullptr) access.writer()->add(spool::NodePlace{node, stack});
}

}  // namespace

void graph_node_seen(const nvidia::CuptiLibrary& api, bool cloned, const cupti::ResourceData& resource) {
  const cupti::GraphData* graph = static_cast<const cupti::GraphData*>(resource.descriptor);
  if (graph == nullptr || graph->node == nullptr) return;
  spool::GraphNode record;
  if (api.cuptiGetGraphNodeId(graph->node, &record.node) != cupti::kSuccess) return;
  if (cloned) {
    if (graph->original_node == nullptr ||
        api.cuptiGetGraphNodeId(graph->original_node, &record.original) != cupti::kSuccess)
      return;
    Instantiation& now = instantiation;
    if (now.under_way && !now.incomplete)
      now.incomplete = now.copies.size >= kGraphEdgesMax ||
                       !now.copies.add({graph->original_node, graph->node, record.node,
                                        static_cast<uint32_t>(now.copies.size), graph->node_type});
  } else {
    record.call = current_library_call();
    place_node(record.node);
    if (record.call == 0) return;  // an instantiated copy without an origin in the spool has no shape either
  }
  SpoolAccess access;
  if (access.writer() != nullptr) access.writer()->add(record);
}

void instantiation_begins() {
  instantiation.copies.release();  // of a call whose end was not seen
  instantiation.under_way = true;
  instantiation.incomplete = false;
}

void instantiation_ends(const cupti::CallbackData& call) {
  Instantiation& now = instantiation;
  const bool made = call.result != nullptr && *static_cast<const int*>(call.result) == 0 && call.parameters != nullptr;
  if (now.under_way && now.incomplete) note_too_many();
  if (now.under_way && !now.incomplete && made && now.copies.size != 0)
    read_edges(static_cast<const cupti::GraphInstantiateArguments*>(call.parameters)->graph);
  now.under_way = false;
  now.copies.release();
}

}  // namespace llmprof::inject
