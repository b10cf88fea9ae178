#include "derive/single_texts.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "derive/step_names.h"

namespace llmprof {
namespace {

constexpr size_t kTextsMin = 3;
constexpr size_t kStepsMin = 2;

// A launch of each step that detection knows by what it holds, rising, by thread.
std::map<ThreadId, std::vector<int64_t>> steps_by_thread(const std::vector<LaunchOrder>& orders,
                                                         const std::vector<std::vector<StepDraft>>& detected) {
  std::map<ThreadId, std::vector<int64_t>> out;
  for (size_t i = 0; i < orders.size(); ++i) {
    const LaunchTimes times(orders[i]);
    for (const StepDraft& step : detected[i])
      if (!step.by_period && step.thread != kNoRow)
        out[step.thread].push_back(middle_launch(times.of(step.thread), step.begin_ns, step.end_ns));
  }
  for (auto& [thread, steps] : out) std::sort(steps.begin(), steps.end());
  return out;
}

// The ranges of one kind on one thread whose texts come once.
struct Singles {
  std::vector<size_t> ranges;  // in StageRanges::ranges
  std::vector<size_t> held;    // steps of each in which there are any

  bool several_each() {
    if (ranges.size() < kTextsMin || held.empty()) return false;
    std::sort(held.begin(), held.end());
    return held[(held.size() - 1) / 2] >= kStepsMin;
  }
};

}  // namespace

void drop_single_texts(const Trace& trace, const std::vector<LaunchOrder>& orders,
                       const std::vector<std::vector<StepDraft>>& detected, StageRanges& stages) {
  std::map<std::string, size_t> times;
  const auto text_of = [&](const StageRange& range) {
    return without_counters(trace.text(trace.annotations.name[range.annotation]));
  };
  for (const StageRange& range : stages.ranges) ++times[text_of(range)];
  const std::map<ThreadId, std::vector<int64_t>> steps = steps_by_thread(orders, detected);
  std::map<ThreadId, std::map<StageKind, Singles>> singles;
  for (size_t r = 0; r < stages.ranges.size(); ++r) {
    const StageRange& range = stages.ranges[r];
    const StepName& name = stages.names[range.name];
    if (name.one_step || name.by_rule || times[text_of(range)] > 1) continue;
    Singles& same = singles[range.thread][name.kind];
    same.ranges.push_back(r);
    const auto of_thread = steps.find(range.thread);
    if (of_thread == steps.end()) continue;
    const auto first = std::lower_bound(of_thread->second.begin(), of_thread->second.end(), range.start_ns);
    const auto last = std::lower_bound(first, of_thread->second.end(), range.end_ns);
    if (first != last) same.held.push_back(static_cast<size_t>(last - first));
  }
  std::set<size_t> dropped;
  for (auto& [thread, kinds] : singles) {
    std::set<StageKind> requests;
    for (auto& [kind, same] : kinds)
      if (same.several_each()) requests.insert(kind);
    if (std::all_of(requests.begin(), requests.end(), [](StageKind kind) { return kind == StageKind::kDecode; }))
      continue;
    for (const StageKind kind : requests) dropped.insert(kinds[kind].ranges.begin(), kinds[kind].ranges.end());
  }
  if (dropped.empty()) return;
  std::vector<StageRange> kept;
  for (size_t r = 0; r < stages.ranges.size(); ++r)
    if (dropped.count(r) == 0) kept.push_back(stages.ranges[r]);
  stages.ranges = std::move(kept);
}

}  // namespace llmprof
