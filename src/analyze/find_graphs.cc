// Findings about CUDA graphs that a program makes.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "analyze/finding.h"
#include "base/text_table.h"

namespace llmprof {
namespace {

// The step whose window holds the time, on any device; kNoRow: none. `ends`: steps by the end of their window.
class StepsByTime {
 public:
  explicit StepsByTime(const Steps& steps) {
    for (Row s = 0; s < steps.size(); ++s) by_end_.emplace(steps.end_ns[s], s);
    starts_ = steps.start_ns;
  }
  StepId at(int64_t time_ns) const {
    const auto found = by_end_.upper_bound(time_ns);
    return found != by_end_.end() && starts_[found->second] <= time_ns ? StepId(found->second) : StepId(kNoRow);
  }

 private:
  std::multimap<int64_t, Row> by_end_;
  std::vector<int64_t> starts_;
};

}  // namespace

void find_graphs_made_anew(const FindingContext& finding) {
  constexpr double kPerStepMin = 0.5;
  const Trace& trace = finding.trace();
  const std::vector<replay::MadeGraph> made = replay::made_graphs(trace);
  if (made.empty()) return;
  struct Sums {
    double graphs = 0, ns = 0;
  };
  std::map<uint32_t, Sums> stages;
  const StepsByTime steps(trace.steps);
  for (const replay::MadeGraph& graph : made) {
    const StepId step = steps.at(trace.api_calls.start_ns[graph.begin]);
    if (step == kNoRow) continue;
    Sums& sums = stages[finding.context.groups.stage_of_step[step]];
    const int64_t end = trace.api_calls.start_ns[graph.instantiated] + trace.api_calls.dur_ns[graph.instantiated];
    ++sums.graphs;
    sums.ns += static_cast<double>(end - trace.api_calls.start_ns[graph.begin]);
  }
  for (const StageView& stage : finding.stages) {
    const auto found = stages.find(stage.stage);
    if (found == stages.end() || found->second.graphs < kPerStepMin * stage.count()) continue;
    const Sums& sums = found->second;
    if (!finding.worth(stage, "graphs-kept", true)) continue;
    Finding& out =
        finding.add("graphs-made-anew", &stage,
                    fmt::format("{}{:.3g} CUDA graphs are captured in each step, where one made before would "
                                "be replayed",
                                stage.label(), sums.graphs / stage.count()),
                    sums.ns);
    out.evidence = {
        counted("graphs captured per step", sums.graphs / stage.count(), Unit::kOne),
        measured("from the start of a capture to the graph, per step", stage.per_step_ms(sums.ns), Unit::kMs)};
    out.advice = {
        "Capture once for each shape and replay: what changes from step to step (places, lengths, tokens) belongs in "
        "tensors that the graph reads, not in Python numbers that it is made of.",
        "Make the graphs of all shapes before serving, and keep those that are used again."};
    finding.add_places(stage, PlaceKind::kHostCode, out);
    out.bound = stage.bound_of_waiting(sums.ns);
  }
}

void find_graphs_in_pieces(const FindingContext& finding) {
  constexpr double kGraphsMin = 8;
  const Trace& trace = finding.trace();
  struct Graph {
    uint32_t stage = 0;
    StepId step = kNoRow;
    StreamId stream = kNoRow;
    int64_t start_ns = 0, end_ns = 0;
    double nodes = 0;
  };
  std::map<ApiCallId, Graph> graphs;  // in the order of their launches
  for (GpuOpId op = 0; op < trace.gpu_ops.size(); ++op) {
    const ApiCallId call = trace.gpu_links.api[op];
    const StepId step = trace.gpu_links.step[op];
    if (trace.gpu_ops.graph_node[op] == 0 || call == kNoRow || step == kNoRow) continue;
    const auto [at, first] = graphs.try_emplace(call);
    Graph& graph = at->second;
    if (first) graph = {finding.stage_of(op), step, trace.gpu_ops.stream[op], trace.gpu_ops.start_ns[op], 0, 0};
    graph.start_ns = std::min(graph.start_ns, trace.gpu_ops.start_ns[op]);
    graph.end_ns = std::max(graph.end_ns, trace.end_of(op));
    ++graph.nodes;
  }
  struct Sums {
    double graphs = 0, nodes = 0, apart_ns = 0;
  };
  std::map<uint32_t, Sums> stages;
  std::map<StreamId, const Graph*> before;
  for (const auto& [call, graph] : graphs) {
    Sums& sums = stages[graph.stage];
    ++sums.graphs;
    sums.nodes += graph.nodes;
    const Graph*& last = before[graph.stream];
    if (last != nullptr && last->step == graph.step)
      sums.apart_ns += static_cast<double>(std::max<int64_t>(0, graph.start_ns - last->end_ns));
    last = &graph;
  }
  for (const StageView& stage : finding.stages) {
    const auto found = stages.find(stage.stage);
    if (found == stages.end() || found->second.graphs < kGraphsMin * stage.count()) continue;
    const Sums& sums = found->second;
    if (!finding.worth(stage, "graph", false)) continue;
    Finding& out = finding.add("graphs-in-pieces", &stage,
                               fmt::format("{}a step launches {:.3g} CUDA graphs one behind the other", stage.label(),
                                           sums.graphs / stage.count()),
                               sums.apart_ns);
    out.evidence = {counted("graphs launched per step", sums.graphs / stage.count(), Unit::kOne),
                    counted("their nodes, mean", sums.nodes / sums.graphs, Unit::kOne),
                    measured("between the end of a graph and the next one's start, per step",
                             stage.per_step_ms(sums.apart_ns), Unit::kMs)};
    out.advice = {
        "Capture the whole step as one graph: each launch costs the host some microseconds, and the GPU as much "
        "between "
        "the last node of a graph and the first of the next.",
        "Where something between them cannot be captured (attention of varying shapes), capture what lies between two "
        "such places as one graph each."};
    out.bound = stage.bound_of_waiting(sums.apart_ns);
  }
}

}  // namespace llmprof
