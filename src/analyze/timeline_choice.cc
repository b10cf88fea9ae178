#include "analyze/timeline_choice.h"

#include <algorithm>

#include "analyze/groups.h"
#include "replay/latencies.h"
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

std::vector<GpuOpId> awaited_by_call(const replay::Timeline& timeline) {
  const Trace& trace = timeline.trace;
  std::vector<GpuOpId> last = replay::last_awaited(timeline);
  for (Row call = 0; call < last.size(); ++call) {
    // What ended later was waited for by somebody else.
    if (last[call] != kNoRow && trace.end_of(last[call]) > timeline.end_of(call)) last[call] = kNoRow;
    for (const GpuOpId op : timeline.stream_awaits.of(call))
      if (last[call] == kNoRow || trace.end_of(op) > trace.end_of(last[call])) last[call] = op;
  }
  return last;
}

void add_paths(const replay::StepReplay& replayed, std::vector<StageChoice>& stages) {
  std::vector<StepId> steps;
  for (const StageChoice& stage : stages) steps.insert(steps.end(), {stage.median.step, stage.slowest.step});
  if (steps.empty()) return;
  const std::vector<std::vector<replay::PathSegment>> paths = replayed.paths(steps);
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
  const std::vector<ProcessorKind>& kinds = trace.devices.kind;
  if (std::find(kinds.begin(), kinds.end(), ProcessorKind::kCpu) != kinds.end()) return out;  // the host is the device
  const replay::StepReplay replayed(trace);
  add_paths(replayed, out.stages);
  out.awaited = awaited_by_call(replayed.timeline());
  return out;
}

}  // namespace llmprof
