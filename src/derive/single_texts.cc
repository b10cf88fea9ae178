#include "derive/single_texts.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "derive/step_names.h"

namespace llmprof {
namespace {

constexpr size_t kTextsMin = 3;
constexpr size_t kRunsInEachMin = 2;

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

// The ranges of one kind on one thread whose texts come once, in StageRanges::ranges.
using Singles = std::map<ThreadId, std::map<StageKind, std::vector<size_t>>>;

Singles singles_of(const Trace& trace, const StageRanges& stages) {
  std::vector<uint32_t> text_of(stages.ranges.size());
  std::vector<size_t> times;
  std::map<std::string, uint32_t> texts;
  for (size_t r = 0; r < stages.ranges.size(); ++r) {
    const std::string_view text = trace.text(trace.annotations.name[stages.ranges[r].annotation]);
    text_of[r] = texts.try_emplace(without_counters(text), static_cast<uint32_t>(times.size())).first->second;
    if (text_of[r] == times.size()) times.push_back(0);
    ++times[text_of[r]];
  }
  Singles out;
  for (size_t r = 0; r < stages.ranges.size(); ++r) {
    const StepName& name = stages.names[stages.ranges[r].name];
    if (!name.one_step && !name.by_rule && times[text_of[r]] == 1) out[stages.ranges[r].thread][name.kind].push_back(r);
  }
  std::erase_if(out, [](const auto& of_thread) {
    return std::none_of(of_thread.second.begin(), of_thread.second.end(),
                        [](const auto& of_kind) { return of_kind.second.size() >= kTextsMin; });
  });
  return out;
}

// Whether the typical one of the ranges holds several steps, of those in which there is any.
bool hold_several(const StageRanges& stages, const std::vector<size_t>& ranges, const std::vector<int64_t>& steps) {
  std::vector<size_t> held;
  for (const size_t r : ranges) {
    const auto first = std::lower_bound(steps.begin(), steps.end(), stages.ranges[r].start_ns);
    const auto last = std::lower_bound(first, steps.end(), stages.ranges[r].end_ns);
    if (first != last) held.push_back(static_cast<size_t>(last - first));
  }
  std::sort(held.begin(), held.end());
  return ranges.size() >= kTextsMin && !held.empty() && held[(held.size() - 1) / 2] >= kRunsInEachMin;
}

}  // namespace

void drop_single_texts(const Trace& trace, const std::vector<LaunchOrder>& orders,
                       const std::vector<std::vector<StepDraft>>& detected, StageRanges& stages) {
  Singles singles = singles_of(trace, stages);
  if (singles.empty()) return;
  const std::map<ThreadId, std::vector<int64_t>> steps = steps_by_thread(orders, detected);
  std::set<size_t> dropped;
  for (auto& [thread, kinds] : singles) {
    const auto of_thread = steps.find(thread);
    if (of_thread == steps.end()) continue;
    std::set<StageKind> requests;
    for (const auto& [kind, ranges] : kinds)
      if (hold_several(stages, ranges, of_thread->second)) requests.insert(kind);
    if (std::all_of(requests.begin(), requests.end(), [](StageKind kind) { return kind == StageKind::kDecode; }))
      continue;
    for (const StageKind kind : requests) dropped.insert(kinds[kind].begin(), kinds[kind].end());
  }
  if (dropped.empty()) return;
  std::vector<StageRange> kept;
  for (size_t r = 0; r < stages.ranges.size(); ++r)
    if (dropped.count(r) == 0) kept.push_back(stages.ranges[r]);
  stages.ranges = std::move(kept);
}

}  // namespace llmprof
