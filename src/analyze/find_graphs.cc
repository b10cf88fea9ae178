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

}  // namespace llmprof
