#include "analyze/timeline_choice.h"

#include <algorithm>

#include "analyze/groups.h"
#include "replay/replay.h"

namespace llmprof {
namespace {

std::vector<CriticalPiece> pieces_of(const std::vector<replay::PathSegment>& path) {
  std::vector<CriticalPiece> out;
  out.reserve(path.size());
  for (const replay::PathSegment& piece : path)
    out.push_back({piece.start_ns, piece.end_ns, replay::in_words(piece.part), piece.op, piece.call});
  return out;
}

void add_paths(const Trace& trace, std::vector<StageChoice>& stages) {
  std::vector<StepId> steps;
  for (const StageChoice& stage : stages) steps.insert(steps.end(), {stage.median.step, stage.slowest.step});
  const std::vector<ProcessorKind>& kinds = trace.devices.kind;
  const bool on_a_cpu = std::find(kinds.begin(), kinds.end(), ProcessorKind::kCpu) != kinds.end();
  if (steps.empty() || on_a_cpu) return;  // the host is the device there
  const std::vector<std::vector<replay::PathSegment>> paths = replay::StepReplay(trace).paths(steps);
  for (size_t i = 0; i < stages.size(); ++i) {
    stages[i].median.path = pieces_of(paths[2 * i]);
    stages[i].slowest.path = pieces_of(paths[2 * i + 1]);
  }
}

}  // namespace

TimelineChoice choose_timeline(const Trace& trace) {
  const Groups groups = group_trace(trace);
  TimelineChoice out;
  std::vector<const StageGroup*> chosen;
  for (const StageGroup& group : groups.stages) {
    const bool steady = !group.unattributed && !group.is_warm_up() && group.state == StepState::kUsual;
    if (steady && !group.steps.empty()) chosen.push_back(&group);
  }
  std::stable_sort(chosen.begin(), chosen.end(),
                   [](const StageGroup* a, const StageGroup* b) { return a->wall_ns > b->wall_ns; });
  for (const StageGroup* group : chosen) {
    std::vector<Row> steps = group->steps;
    const auto length = [&](Row step) { return trace.steps.end_ns[step] - trace.steps.start_ns[step]; };
    std::stable_sort(steps.begin(), steps.end(), [&](Row a, Row b) { return length(a) < length(b); });
    StageChoice& stage = out.stages.emplace_back();
    stage.stage = stage_name(trace, *group);
    stage.steps = steps.size();
    stage.median.step = steps[(steps.size() - 1) / 2];
    stage.slowest.step = steps.back();
  }
  add_paths(trace, out.stages);
  return out;
}

}  // namespace llmprof
