// CUDA graphs: the launches of a step as one, and those that are made anew. One call of the host launches all of them,
// so what the host does between the first and the last launch takes no time beside the GPU. Waits within a step cut the
// graph: it is then one graph from wait to wait, and between long stretches of host code, which is what is replayed.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "derive/graph_calls.h"
#include "replay/what_if.h"

namespace llmprof::replay {
namespace {

bool goes_into_graph(const Recording& recording, ApiCallId call) {
  if (recording.step_of(call) == kNoRow || recording.waits(call)) return false;
  switch (recording.kind(call)) {
    case ApiKind::kLaunch:
      return true;
    case ApiKind::kGraphLaunch:
      return !recording.launched(call).empty();
    case ApiKind::kEnqueue: {
      const LaunchedOps ops = recording.launched(call);
      return ops.size() == 1 && recording.trace().gpu_ops.path[ops[0]] != CopyPath::kDeviceToHost;
    }
    default:
      return false;
  }
}

}  // namespace

std::vector<MadeGraph> made_graphs(const Trace& trace) {
  std::vector<GraphCall> kinds(trace.strings.size(), GraphCall::kNone);
  std::vector<uint8_t> seen(trace.strings.size(), 0);
  struct Thread {
    ApiCallId begin = kNoRow;
    size_t made = SIZE_MAX;  // not launched yet
  };
  std::map<ThreadId, Thread> threads;
  std::vector<MadeGraph> out;
  for (ApiCallId call = 0; call < trace.api_calls.size(); ++call) {
    const size_t name = index(trace.api_calls.name[call]);
    if (seen[name] == 0) seen[name] = 1, kinds[name] = graph_call_of(trace.text(trace.api_calls.name[call]));
    if (kinds[name] == GraphCall::kNone) continue;
    Thread& thread = threads[trace.api_calls.thread[call]];
    if (kinds[name] == GraphCall::kBeginCapture) {
      thread = {call, SIZE_MAX};
    } else if (kinds[name] == GraphCall::kInstantiate && thread.begin != kNoRow) {
      thread.made = out.size();
      out.push_back({thread.begin, call, kNoRow});
      thread.begin = kNoRow;
    } else if (kinds[name] == GraphCall::kLaunch && thread.made != SIZE_MAX) {
      out[thread.made].launch = call;
      thread.made = SIZE_MAX;
    }
  }
  return out;
}

void with_graph(const Recording& recording, Durations& durations, Latencies& latencies) {
  struct Graph {
    StepId step = kNoRow;
    ApiCallId launch = kNoRow;  // its first call, which stands for the launch of all
    double nodes = 0;
    StreamId stream = kNoRow;  // of the last that goes into it
  };
  std::map<ThreadId, Graph> open;  // launched on a thread, and no wait since
  const ApiCalls& calls = recording.trace().api_calls;
  const auto close = [&](Graph& graph) {
    if (graph.launch != kNoRow && graph.nodes > 1)
      durations.call_ns[graph.launch] = std::max<int64_t>(durations.call_ns[graph.launch],
                                                          std::llround(recording.costs().graph_launch_ns(graph.nodes)));
    graph = {};
  };
  for (ApiCallId call = 0; call < calls.size(); ++call) {
    Graph& graph = open[calls.thread[call]];
    if (recording.waits(call)) close(graph);
    if (!goes_into_graph(recording, call)) continue;
    const LaunchedOps launched = recording.launched(call);
    const StreamId stream = launched.empty() ? graph.stream : recording.trace().gpu_ops.stream[launched.front()];
    // Graphs on streams of their own run side by side, which one behind the other they would not.
    const bool beside = recording.kind(call) == ApiKind::kGraphLaunch && stream != graph.stream;
    // Long host code is the program's own: it stays, and the launches behind it are another graph.
    if (graph.step != recording.step_of(call) || beside || durations.before_ns[call] >= kLongGapNs) {
      close(graph);
      graph = {recording.step_of(call), call, 0, stream};
    } else {
      durations.call_ns[call] = durations.before_ns[call] = 0;
      for (const GpuOpId op : launched) durations.with_previous[op] = 1;
      graph.stream = stream;
    }
    graph.nodes += static_cast<double>(std::max<size_t>(1, launched.size()));
  }
  for (auto& [thread, graph] : open) close(graph);
  // The first node of a graph lies as far behind the one before then as nodes of a graph lie apart.
  if (latencies.any_edge.samples != 0)
    for (auto& of_before : latencies.behind) {
      Latency& first_node = of_before[static_cast<size_t>(StartKind::kGraphNode)];
      first_node.ns = std::min(first_node.ns, latencies.any_edge.ns);
    }
  Latency& behind = latencies.behind[static_cast<size_t>(StartKind::kKernel)][static_cast<size_t>(StartKind::kKernel)];
  behind.ns -= recording.costs().nodes_sooner_ns();
}

void with_graphs_kept(const Recording& recording, Durations& durations, Latencies&) {
  const ApiCalls& calls = recording.trace().api_calls;
  const Timeline& timeline = recording.timeline();
  for (const MadeGraph& made : made_graphs(recording.trace())) {
    // Frameworks wait for the GPU and set what the captured work reads before they begin.
    constexpr int kBeforeMost = 8;
    ApiCallId first = made.begin, before = timeline.before[first];
    for (int i = 0; i < kBeforeMost && before != kNoRow && !recording.ends_step(before); ++i) {
      if (recording.waits(before)) {
        first = before;
        break;
      }
      before = timeline.before[before];
    }
    for (ApiCallId call = first; call <= made.instantiated; ++call) {
      if (calls.thread[call] != calls.thread[first]) continue;
      if (call != first) durations.before_ns[call] = 0;
      durations.call_ns[call] = 0;
      durations.no_wait[call] = 1;
      for (const GpuOpId op : recording.launched(call)) durations.gone[op] = 1;
    }
    if (made.launch == kNoRow) continue;
    durations.before_ns[made.launch] = std::min(durations.before_ns[made.launch], recording.dispatch_ns());
    const double nodes = static_cast<double>(recording.launched(made.launch).size());
    if (const int64_t launch_ns = std::llround(recording.costs().graph_launch_ns(nodes)); launch_ns > 0)
      durations.call_ns[made.launch] = std::min(durations.call_ns[made.launch], launch_ns);
  }
}

std::string graph_forbidden(const Recording& recording, const Durations& durations, std::span<const StepId> steps) {
  const auto is_one = [&](StepId step) { return std::binary_search(steps.begin(), steps.end(), step); };
  size_t launches = 0, graphs = 0, waits = 0, allocations = 0;
  for (ApiCallId call = 0; call < recording.trace().api_calls.size(); ++call) {
    if (!is_one(recording.step_of(call))) continue;
    launches += recording.kind(call) == ApiKind::kLaunch ? 1 : 0;
    graphs += recording.kind(call) == ApiKind::kGraphLaunch ? 1 : 0;
    if (durations.no_wait[call] != 0) continue;  // gone
    waits += recording.waits(call) && !recording.ends_step(call) ? 1 : 0;
    allocations += recording.kind(call) == ApiKind::kAllocator ? 1 : 0;
  }
  const auto per_step = [&](size_t count) { return static_cast<double>(count) / static_cast<double>(steps.size()); };
  constexpr double kLaunchesMin = 8;
  if (graphs > 0 && per_step(launches + graphs) - 1 < kLaunchesMin)
    return fmt::format("steps launch {:.3g} graphs already", per_step(graphs));
  if (per_step(waits) >= 0.5)
    return fmt::format("the host waits {:.3g} times within a step, and what it reads may decide what is launched",
                       per_step(waits));
  if (per_step(allocations) >= 0.5)
    return fmt::format("{:.3g} allocations in a step, which a capture does not allow", per_step(allocations));
  return {};
}

}  // namespace llmprof::replay
