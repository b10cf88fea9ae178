#include "derive/host_stages.h"

#include <algorithm>
#include <map>

namespace llmprof {
namespace {

// The steps of one device, where one thread has them all.
struct Lane {
  int32_t device = 0;
  size_t first = 0, last = 0;  // in the steps
};

// By thread: the device with most of its steps. Threads that share a device have none.
std::map<Row, Lane> lanes_of(const std::vector<StepDraft>& steps) {
  std::map<Row, Lane> lanes;
  for (size_t first = 0, last = 0; first < steps.size(); first = last) {
    const StepDraft& step = steps[first];
    bool alone = step.thread != kNoRow;
    for (; last < steps.size() && steps[last].device == step.device; ++last) alone &= steps[last].thread == step.thread;
    if (!alone) continue;
    const auto [lane, added] = lanes.emplace(step.thread, Lane{step.device, first, last});
    if (!added && last - first > lane->second.last - lane->second.first) lane->second = {step.device, first, last};
  }
  return lanes;
}

// The GPU has no part in it.
StepDraft host_draft_of(const StageRange& range, const StepName& name, AnnotationKind kind, int32_t device) {
  StepDraft draft = draft_of_range(range, name, kind, device);
  draft.host_only = true;
  draft.last_launch_ns = range.start_ns;
  draft.gpu_start_ns = draft.gpu_end_ns = range.end_ns;
  return draft;
}

bool before_first_token(StageKind kind) { return kind == StageKind::kVision || kind == StageKind::kPrefill; }

}  // namespace

void add_host_stages(const Trace& trace, const StageRanges& stages, const RecordedSpans& recorded,
                     std::vector<StepDraft>& steps) {
  std::vector<StepDraft> found;
  for (const auto& [thread, lane] : lanes_of(steps)) {
    const auto by_thread = [](const StageRange& range, Row row) { return range.thread < row; };
    size_t r = static_cast<size_t>(std::lower_bound(stages.ranges.begin(), stages.ranges.end(), thread, by_thread) -
                                   stages.ranges.begin());
    const std::vector<TimeSpan>& unrecorded = recorded.unrecorded_process(trace.threads.process_id[thread]);
    size_t next = lane.first;  // first step that begins after the range began
    for (; r < stages.ranges.size() && stages.ranges[r].thread == thread; ++r) {
      const StageRange& range = stages.ranges[r];
      const StepName& name = stages.names[range.name];
      while (next < lane.last && steps[next].begin_ns < range.start_ns) ++next;
      if (name.kind != StageKind::kVision || next == lane.last) continue;
      // A step that begins inside is that of the range, or a detected one that the range holds.
      const bool launches = steps[next].begin_ns < range.end_ns;
      if (launches || !before_first_token(steps[next].kind)) continue;
      if (RecordedSpans::touches(unrecorded, range.start_ns, range.end_ns)) continue;
      found.push_back(host_draft_of(range, name, trace.annotations.kind[range.annotation], lane.device));
    }
  }
  steps.insert(steps.end(), found.begin(), found.end());
}

}  // namespace llmprof
