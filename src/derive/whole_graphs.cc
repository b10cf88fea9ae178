#include "derive/whole_graphs.h"

#include <algorithm>
#include <numeric>

#include "derive/derive.h"
#include "derive/id_index.h"
#include "trace/rearrange.h"

namespace llmprof {
namespace {

// True if nodes of the same launch are recorded as well: then they tell its time, and nothing is counted twice.
bool nodes_recorded(const Trace& trace, const IdIndex& activities, Row launch) {
  constexpr int kTried = 64;
  const GraphLaunches& graphs = trace.graph_launches;
  const int64_t end_ns = graphs.start_ns[launch] + graphs.dur_ns[launch];
  int tried = 0;
  for (GpuOpId gpu = activities.first(graphs.correlation[launch]); gpu != kNoRow && tried < kTried;
       gpu = activities.next(gpu), ++tried) {
    if (trace.gpu_ops.start_ns[gpu] < end_ns && trace.end_of(gpu) > graphs.start_ns[launch]) return true;
  }
  return false;
}

void append_launch(Trace& trace, Row launch, StringId name) {
  const GraphLaunches& graphs = trace.graph_launches;
  trace.gpu_ops.append({.start_ns = graphs.start_ns[launch],
                        .dur_ns = graphs.dur_ns[launch],
                        .stream = graphs.stream[launch],
                        .name = name,
                        .correlation = graphs.correlation[launch],
                        .kind = GpuOpKind::kKernel});
}

}  // namespace

void fold_whole_graphs(Trace& trace) {
  if (trace.graph_launches.empty()) return;
  const StringId name = trace.strings.intern(kWholeGraphName);
  {
    const IdIndex activities(trace.gpu_ops.correlation);
    std::vector<Row> kept;
    for (Row launch = 0; launch < trace.graph_launches.size(); ++launch) {
      if (!nodes_recorded(trace, activities, launch)) kept.push_back(launch);
    }
    for (const Row launch : kept) append_launch(trace, launch, name);
  }
  trace.graph_launches.clear();

  GpuOps& gpu = trace.gpu_ops;
  std::vector<Row> order(gpu.size());
  std::iota(order.begin(), order.end(), Row{0});
  std::stable_sort(order.begin(), order.end(), [&](Row a, Row b) {
    return gpu.start_ns[a] != gpu.start_ns[b] ? gpu.start_ns[a] < gpu.start_ns[b] : gpu.dur_ns[a] > gpu.dur_ns[b];
  });
  rearrange_rows(gpu, order);
  std::vector<Row> moved(order.size());
  for (Row row = 0; row < order.size(); ++row) moved[order[row]] = row;
  for (GpuOpId& row : trace.collectives.gpu_op) row = row < moved.size() ? moved[row] : kNoRow;
}

}  // namespace llmprof
