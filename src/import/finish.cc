// finish_import: sorts what the file gave out of order and drops what it gave twice.
#include <algorithm>
#include <iterator>
#include <numeric>

#include "base/parallel.h"
#include "import/importer.h"
#include "trace/check_trace.h"
#include "trace/empty_columns.h"
#include "trace/rearrange.h"

namespace llmprof {
namespace {

// The rows in time order, enclosing ranges first; empty if they are so already.
template <class DurationColumn>
std::vector<Row> time_order(const std::vector<int64_t>& start, const DurationColumn* dur) {
  const auto before = [&](Row a, Row b) {
    if (start[a] != start[b]) return start[a] < start[b];
    return dur != nullptr && (*dur)[a] > (*dur)[b];
  };
  bool sorted = true;
  for (Row row = 1; row < start.size() && sorted; ++row) sorted = !before(row, row - 1);
  if (sorted) return {};
  std::vector<Row> order(start.size());
  std::iota(order.begin(), order.end(), 0U);
  std::stable_sort(order.begin(), order.end(), before);
  return order;
}

// Rows that repeat an earlier row of the same start in every column, as equal(a, b) says. Rows must be sorted.
template <class Equal>
std::vector<Row> without_repeats(const std::vector<int64_t>& start, Equal&& equal) {
  std::vector<Row> kept;
  bool any = false;
  constexpr Row kLookBack = 16;  // rows of one start; more than that are different things, not copies
  for (Row row = 0; row < start.size(); ++row) {
    bool repeat = false;
    for (Row other = row; other-- > 0 && row - other <= kLookBack && start[other] == start[row] && !repeat;)
      repeat = equal(other, row);
    if (repeat && !any) {
      any = true;
      kept.resize(row);
      std::iota(kept.begin(), kept.end(), 0U);
    }
    if (any && !repeat) kept.push_back(row);
  }
  return any ? kept : std::vector<Row>();
}

struct Counts {
  uint64_t unsorted = 0, repeats = 0;
};

// Tables in time order of which nothing is ever dropped.
template <class Table>
Counts sort_by_time(Table& table, const std::vector<int64_t>& start, const std::vector<int64_t>* dur) {
  Counts counts;
  if (const std::vector<Row> order = time_order(start, dur); !order.empty()) {
    rearrange_rows(table, order);
    counts.unsorted = 1;
  }
  return counts;
}

// Library calls by start; graph nodes, which point at them, by node.
Counts sort_library(Trace& trace) {
  Counts counts;
  LibraryCalls& calls = trace.library_calls;
  GraphNodes& nodes = trace.graph_nodes;
  if (const std::vector<Row> order = time_order(calls.start_ns, &calls.dur_ns); !order.empty()) {
    rearrange_rows(calls, order);
    counts.unsorted = 1;
    std::vector<Row> moved(order.size());
    for (Row row = 0; row < order.size(); ++row) moved[order[row]] = row;
    for (LibraryCallId& call : nodes.library_call) call = call < moved.size() ? moved[call] : kNoRow;
  }
  if (std::is_sorted(nodes.node.begin(), nodes.node.end())) return counts;
  std::vector<Row> order(nodes.size());
  std::iota(order.begin(), order.end(), 0U);
  std::stable_sort(order.begin(), order.end(), [&](Row a, Row b) { return nodes.node[a] < nodes.node[b]; });
  rearrange_rows(nodes, order);
  return counts;
}

// Edges of graphs by node; an edge that was told twice once.
void sort_edges(GraphEdges& edges) {
  std::vector<Row> order(edges.size());
  std::iota(order.begin(), order.end(), 0U);
  const auto key = [&](Row row) { return std::make_pair(edges.node[row], edges.after[row]); };
  std::sort(order.begin(), order.end(), [&](Row a, Row b) { return key(a) < key(b); });
  order.erase(std::unique(order.begin(), order.end(), [&](Row a, Row b) { return key(a) == key(b); }), order.end());
  rearrange_rows(edges, order);
}

// Places of nodes by node.
void sort_places(NodePlaces& places) {
  std::vector<Row> order(places.size());
  std::iota(order.begin(), order.end(), 0U);
  std::stable_sort(order.begin(), order.end(), [&](Row a, Row b) { return places.node[a] < places.node[b]; });
  rearrange_rows(places, order);
}

template <class Table, class Equal>
Counts sort_and_clean(Table& table, const std::vector<int64_t>& start, const std::vector<int64_t>* dur, Equal&& equal) {
  Counts counts;
  if (const std::vector<Row> order = time_order(start, dur); !order.empty()) {
    rearrange_rows(table, order);
    counts.unsorted = 1;
  }
  const size_t before = table.size();
  if (const std::vector<Row> kept = without_repeats(start, equal); !kept.empty() && before != 0) {
    rearrange_rows(table, kept);
    counts.repeats = before - kept.size();
  }
  return counts;
}

}  // namespace

void finish_import(Trace& trace) {
  check_trace(trace);
  GpuOps& gpu = trace.gpu_ops;
  Ops& ops = trace.ops;
  ApiCalls& api = trace.api_calls;
  Annotations& notes = trace.annotations;
  PythonCalls& python = trace.python_calls;
  static constexpr const char* kTables[] = {
      "gpu_ops",      "ops",           "api_calls",      "python_calls",    "annotations", "memory_events",
      "counters",     "library_calls", "graph_launches", "recurring_calls", "recorded",    "gpu_samples",
      "nvml_samples", "launch_sites",  "product_rows",   "host_places",     "host_paces",  "cpu_readings"};
  Counts counts[std::size(kTables)];
  const auto never = [](Row, Row) { return false; };
  // Collectives refer to rows of gpu_ops, which may move: remember them by what does not change.
  std::vector<Row> moved;
  parallel_run({
      [&] {
        std::vector<Row> order = time_order(gpu.start_ns, &gpu.dur_ns);
        if (!order.empty()) {
          rearrange_rows(gpu, order);
          counts[0].unsorted = 1;
        } else {
          order.resize(trace.collectives.empty() ? 0 : gpu.size());
          std::iota(order.begin(), order.end(), 0U);
        }
        const std::vector<Row> kept = without_repeats(gpu.start_ns, [&](Row a, Row b) {
          return gpu.dur_ns[a] == gpu.dur_ns[b] && gpu.stream[a] == gpu.stream[b] && gpu.name[a] == gpu.name[b] &&
                 gpu.correlation[a] == gpu.correlation[b] && gpu.graph_node[a] == gpu.graph_node[b];
        });
        if (!kept.empty()) {
          counts[0].repeats = gpu.size() - kept.size();
          rearrange_rows(gpu, kept);
          if (!order.empty()) {
            std::vector<Row> both(kept.size());
            for (size_t i = 0; i < kept.size(); ++i) both[i] = order[kept[i]];
            order.swap(both);
          }
        }
        if (trace.collectives.empty()) return;
        moved.assign(std::max<size_t>(order.size() + counts[0].repeats, 1), kNoRow);
        for (Row row = 0; row < order.size(); ++row) moved[order[row]] = row;
      },
      [&] {
        counts[1] = sort_and_clean(ops, ops.start_ns, &ops.dur_ns, [&](Row a, Row b) {
          return ops.dur_ns[a] == ops.dur_ns[b] && ops.thread[a] == ops.thread[b] && ops.name[a] == ops.name[b] &&
                 ops.external_id[a] == ops.external_id[b] && ops.external_id[a] != 0;
        });
      },
      [&] {
        counts[2] = sort_and_clean(api, api.start_ns, &api.dur_ns, [&](Row a, Row b) {
          return api.dur_ns[a] == api.dur_ns[b] && api.thread[a] == api.thread[b] && api.name[a] == api.name[b] &&
                 api.correlation[a] == api.correlation[b] && api.correlation[a] != 0;
        });
      },
      [&] { counts[3] = sort_and_clean(python, python.start_ns, &python.dur_ns, never); },
      [&] { counts[4] = sort_and_clean(notes, notes.start_ns, &notes.dur_ns, never); },
      [&] { counts[5] = sort_and_clean(trace.memory_events, trace.memory_events.time_ns, nullptr, never); },
      [&] { counts[6] = sort_and_clean(trace.counters, trace.counters.time_ns, nullptr, never); },
      [&] { counts[7] = sort_library(trace); },
      [&] { sort_edges(trace.graph_edges); },
      [&] { sort_places(trace.node_places); },
      [&] {
        GraphLaunches& launches = trace.graph_launches;
        counts[8] = sort_by_time(launches, launches.start_ns, &launches.dur_ns);
      },
      [&] { counts[9] = sort_by_time(trace.recurring_calls, trace.recurring_calls.time_ns, nullptr); },
      [&] { counts[10] = sort_by_time(trace.recorded, trace.recorded.start_ns, nullptr); },
      [&] { counts[11] = sort_by_time(trace.gpu_samples, trace.gpu_samples.start_ns, nullptr); },
      [&] { counts[12] = sort_by_time(trace.nvml_samples, trace.nvml_samples.time_ns, nullptr); },
      [&] { counts[13] = sort_by_time(trace.launch_sites, trace.launch_sites.time_ns, nullptr); },
      [&] { counts[14] = sort_by_time(trace.product_rows, trace.product_rows.time_ns, nullptr); },
      [&] { counts[15] = sort_by_time(trace.host_places, trace.host_places.start_ns, nullptr); },
      [&] { counts[16] = sort_by_time(trace.host_paces, trace.host_paces.start_ns, nullptr); },
      [&] { counts[17] = sort_by_time(trace.cpu_readings, trace.cpu_readings.start_ns, nullptr); },
  });
  std::vector<Row> kept;
  for (Row row = 0; row < trace.collectives.size(); ++row) {
    GpuOpId& gpu_op = trace.collectives.gpu_op[row];
    gpu_op = gpu_op < moved.size() ? moved[gpu_op] : kNoRow;
    if (gpu_op != kNoRow) kept.push_back(row);
  }
  if (kept.size() != trace.collectives.size()) rearrange_rows(trace.collectives, kept);
  // The other tables are filled from several spools of one session: to sort them is to join them.
  constexpr size_t kOfOneFile = 7;
  for (size_t i = 0; i < std::size(kTables); ++i) {
    if (counts[i].unsorted != 0 && i < kOfOneFile) trace.diagnostics.add(DiagnosticId::kUnsortedEvents, kTables[i]);
    if (counts[i].repeats != 0) trace.diagnostics.add(DiagnosticId::kDuplicateEvent, kTables[i], counts[i].repeats);
  }
  give_back_empty_columns(trace);
}

}  // namespace llmprof
