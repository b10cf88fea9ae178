// Which call of a math library launched which GPU activity. Eager: the launching API call lies inside the library call
// on the same thread, and of nested calls the innermost counts. Replayed by a CUDA graph: the node was captured under
// the library call. Linear in the rows; sorting only where a recorder wrote the calls out of order.
#include <algorithm>
#include <vector>

#include "derive/derive.h"
#include "derive/host_timeline.h"
#include "derive/id_index.h"
#include "trace/empty_columns.h"

namespace llmprof {
namespace {

// Rows of library_calls by thread and start, enclosing calls first.
std::vector<std::vector<Row>> calls_by_thread(const Trace& trace) {
  const LibraryCalls& calls = trace.library_calls;
  std::vector<std::vector<Row>> rows(trace.threads.size());
  for (Row row = 0; row < calls.size(); ++row) {
    if (calls.thread[row] < rows.size()) rows[calls.thread[row]].push_back(row);
  }
  const auto before = [&](Row a, Row b) {
    return calls.start_ns[a] != calls.start_ns[b] ? calls.start_ns[a] < calls.start_ns[b]
                                                  : calls.dur_ns[a] > calls.dur_ns[b];
  };
  for (std::vector<Row>& mine : rows) {
    if (!std::is_sorted(mine.begin(), mine.end(), before)) std::stable_sort(mine.begin(), mine.end(), before);
  }
  return rows;
}

// The innermost library call around each API call; kNoRow if there is none.
std::vector<Row> library_of_api(const Trace& trace) {
  const LibraryCalls& calls = trace.library_calls;
  const std::vector<std::vector<Row>> rows = calls_by_thread(trace);
  std::vector<RangeCursor> cursors(rows.size());
  for (size_t t = 0; t < rows.size(); ++t) {
    cursors[t] = {calls.start_ns.data(), calls.dur_ns.data(), rows[t].data(), rows[t].data() + rows[t].size()};
  }
  std::vector<Row> found(trace.api_calls.size(), kNoRow);
  for (ApiCallId api = 0; api < trace.api_calls.size(); ++api) {
    const ThreadId thread = trace.api_calls.thread[api];
    if (thread >= cursors.size()) continue;
    cursors[thread].advance(trace.api_calls.start_ns[api]);
    found[api] = cursors[thread].innermost();
  }
  return found;
}

// Node ids are unique within a process only.
class NodeCalls {
 public:
  explicit NodeCalls(const Trace& trace) : trace_(trace), nodes_(trace.graph_nodes.node) {}

  Row call_of(GpuOpId gpu) const {
    constexpr int kTried = 64;
    const Row first = nodes_.first(trace_.gpu_ops.graph_node[gpu]);
    if (first == kNoRow || nodes_.next(first) == kNoRow) return first == kNoRow ? kNoRow : call(first);
    const ApiCallId api = trace_.gpu_links.api[gpu];
    const int64_t process = api == kNoRow ? -1 : process_of(trace_.api_calls.thread[api]);
    int tried = 0;
    for (Row node = first; node != kNoRow && tried < kTried; node = nodes_.next(node), ++tried) {
      const Row found = call(node);
      if (found != kNoRow && process_of(trace_.library_calls.thread[found]) == process) return found;
    }
    return kNoRow;
  }

 private:
  Row call(Row node) const {
    const Row row = trace_.graph_nodes.library_call[node];
    return row < trace_.library_calls.size() ? row : kNoRow;
  }
  int64_t process_of(ThreadId thread) const {
    return thread < trace_.threads.size() ? trace_.threads.process_id[thread] : -1;
  }

  const Trace& trace_;
  IdIndex nodes_;
};

}  // namespace

void link_library_calls(Trace& trace) {
  GpuLinks& links = trace.gpu_links;
  make_empty(links.library_call, links.size());
  if (trace.library_calls.empty()) return;
  const std::vector<Row> of_api = library_of_api(trace);
  const NodeCalls nodes(trace);
  for (GpuOpId gpu = 0; gpu < trace.gpu_ops.size(); ++gpu) {
    if (trace.gpu_ops.graph_node[gpu] != 0) {
      links.library_call[gpu] = nodes.call_of(gpu);
    } else if (links.api[gpu] != kNoRow) {
      links.library_call[gpu] = of_api[links.api[gpu]];
    }
  }
}

}  // namespace llmprof
