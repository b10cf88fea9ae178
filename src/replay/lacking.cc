#include <algorithm>
#include <string_view>

#include "replay/timeline.h"

namespace llmprof::replay {
namespace {

bool is_in(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

struct Lacking {
  bool waits = false, events = false, edges = false;
};

void look_at_calls(const Trace& trace, Lacking& out) {
  const ApiCalls& calls = trace.api_calls;
  std::vector<uint8_t> kinds(trace.strings.size(),
                             0);  // by name: 1 other, 2 waits for a stream, 3 an event, 4 a stream does
  for (Row call = 0; call < calls.size(); ++call) {
    uint8_t& kind = kinds[index(calls.name[call])];
    const std::string_view name = trace.text(calls.name[call]);
    if (kind == 0)
      kind = is_in(name, "StreamSynchronize")  ? 2
             : is_in(name, "EventSynchronize") ? 3
             : is_in(name, "StreamWaitEvent")  ? 4
                                               : 1;
    const bool stream = calls.stream[call] != kNoRow, event = calls.event[call] != 0;
    out.waits |= (kind == 2 && !stream) || (kind == 3 && !event);
    out.events |= kind == 4 && !(stream && event);
  }
}

// A graph of one node has no edges to miss.
bool lacks_edges(const Trace& trace) {
  std::vector<uint8_t> graphs(trace.strings.size(), 0);  // by name: 1 other, 2 launches a graph
  ApiCallId last = kNoRow;
  for (Row op = 0; op < trace.gpu_ops.size(); ++op) {
    const ApiCallId call = trace.gpu_links.api[op];
    if (call == kNoRow) continue;
    uint8_t& kind = graphs[index(trace.api_calls.name[call])];
    if (kind == 0) kind = is_in(trace.text(trace.api_calls.name[call]), "GraphLaunch") ? 2 : 1;
    const bool second = call == last;
    last = call;
    if (kind != 2 || !second) continue;
    const std::vector<uint64_t>& nodes = trace.graph_edges.node;
    if (!std::binary_search(nodes.begin(), nodes.end(), trace.gpu_ops.graph_node[op])) return true;
  }
  return false;
}

}  // namespace

std::string lacking(const Trace& trace) {
  Lacking found;
  look_at_calls(trace, found);
  found.edges = lacks_edges(trace);
  std::string text;
  const auto add = [&](bool lacks, std::string_view what) {
    if (!lacks) return;
    if (!text.empty()) text += ", ";
    text += what;
  };
  add(found.waits, "which stream or event a call waits for");
  add(found.events, "which event a stream waits for");
  add(found.edges, "which nodes of a CUDA graph follow which");
  return text;
}

}  // namespace llmprof::replay
