#include "derive/recurring_steps.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "base/statistics.h"
#include "derive/windows.h"

namespace llmprof {
namespace {

constexpr size_t kStepsMin = 3;
constexpr double kMostSteps = 0.9;

struct HostEvent {
  int64_t time_ns;
  uint64_t key;
};

using DraftIndex = size_t;

// The recorded steps of a stage on one thread and device.
struct StageEvents {
  std::vector<DraftIndex> steps;    // by window
  std::map<uint64_t, size_t> once;  // steps in which a key came once
  std::set<uint64_t> keys;          // all that came
  uint64_t anchor = 0;
  int64_t tail_ns = 0;  // from the anchor to the end of the window
  bool known = false;   // its steps are, by the anchor
};

std::vector<HostEvent> events_of(const Trace& trace, ThreadId thread) {
  std::vector<HostEvent> events;
  const RecurringCalls& calls = trace.recurring_calls;
  for (Row row = 0; row < calls.size(); ++row)
    if (calls.thread[row] == thread) events.push_back({calls.time_ns[row], calls.key[row]});
  std::stable_sort(events.begin(), events.end(),
                   [](const HostEvent& a, const HostEvent& b) { return a.time_ns < b.time_ns; });
  return events;
}

std::pair<size_t, size_t> within(const std::vector<HostEvent>& events, int64_t from_ns, int64_t to_ns) {
  const auto before = [](const HostEvent& event, int64_t time) { return event.time_ns < time; };
  const auto first = std::lower_bound(events.begin(), events.end(), from_ns, before);
  const auto last = std::lower_bound(first, events.end(), to_ns, before);
  return {static_cast<size_t>(first - events.begin()), static_cast<size_t>(last - events.begin())};
}

void count_keys(const std::vector<HostEvent>& events, const std::vector<StepDraft>& drafts, StageEvents& stage) {
  for (const DraftIndex i : stage.steps) {
    const auto [first, last] = within(events, drafts[i].begin_ns, drafts[i].end_ns);
    std::map<uint64_t, size_t> counts;
    for (size_t e = first; e < last; ++e) ++counts[events[e].key];
    for (const auto& [key, count] : counts) {
      stage.keys.insert(key);
      if (count == 1) ++stage.once[key];
    }
  }
}

// The key that comes once in most steps of the stage, and in more of them than in steps of any other.
void choose_anchor(std::map<std::string, StageEvents>& stages, StageEvents& stage) {
  size_t best = 0;
  for (const auto& [key, count] : stage.once) {
    const bool others = std::any_of(stages.begin(), stages.end(), [&, k = key, n = count](const auto& other) {
      const auto found = other.second.once.find(k);
      return &other.second != &stage && found != other.second.once.end() && found->second >= n;
    });
    if (others || count <= best) continue;
    best = count;
    stage.anchor = key;
  }
  stage.known = stage.steps.size() >= kStepsMin &&
                static_cast<double>(best) >= kMostSteps * static_cast<double>(stage.steps.size());
}

// How long steps go on behind the anchor. A host that runs ahead of the GPU calls before the window of the step begins:
// its calls do not tell when a step ends.
void learn(const std::vector<HostEvent>& events, const std::vector<StepDraft>& drafts, StageEvents& stage) {
  std::vector<double> tails;
  size_t outside = 0;
  for (const DraftIndex i : stage.steps) {
    const StepDraft& draft = drafts[i];
    const auto [first, last] = within(events, draft.begin_ns, draft.end_ns);
    int64_t anchor_ns = -1;
    size_t count = 0;
    for (size_t e = first; e < last; ++e) {
      if (events[e].key != stage.anchor) continue;
      anchor_ns = events[e].time_ns;
      ++count;
    }
    if (count != 1) continue;
    tails.push_back(static_cast<double>(draft.window_end_ns - anchor_ns));
    if (anchor_ns < draft.window_start_ns || anchor_ns > draft.window_end_ns) ++outside;
  }
  stage.known = !tails.empty() && static_cast<double>(outside) <= (1 - kMostSteps) * static_cast<double>(tails.size());
  if (stage.known) stage.tail_ns = static_cast<int64_t>(median_of(tails));
}

// The last step of each stage stands for it: it is the steadiest.
StepDraft unseen_step(const StepDraft& like, int64_t start_ns, int64_t end_ns) {
  StepDraft draft;
  draft.device = like.device;
  draft.thread = like.thread;
  draft.kind = like.kind;
  draft.kind_known = like.kind_known;
  draft.stage = like.stage;
  draft.unseen = true;
  draft.begin_ns = draft.host_start_ns = draft.window_start_ns = start_ns;
  draft.gpu_start_ns = draft.last_launch_ns = start_ns;
  draft.end_ns = draft.gpu_end_ns = draft.window_end_ns = end_ns;
  return draft;
}

bool all_in_keys(const std::vector<HostEvent>& events, size_t from, size_t to, const StageEvents& a,
                 const StageEvents& b) {
  for (size_t e = from; e < to; ++e)
    if (a.keys.count(events[e].key) == 0 && b.keys.count(events[e].key) == 0) return false;
  return true;
}

struct ThreadKey {
  int32_t device;
  ThreadId thread;
  bool operator<(const ThreadKey& other) const {
    return device != other.device ? device < other.device : thread < other.thread;
  }
};

// What is longer may be a prompt, which ends with the same product as a step: halfway from the steps to the shortest
// recorded prompt, where prompts take much longer.
int64_t longest_of(const std::map<std::string, StageEvents>& stages, const std::vector<StepDraft>& drafts,
                   const std::vector<int64_t>& lengths) {
  constexpr double kMuchLonger = 1.5;
  int64_t shortest_ns = std::numeric_limits<int64_t>::max();
  for (const auto& [name, stage] : stages)
    for (const DraftIndex i : stage.steps)
      if (drafts[i].kind == StageKind::kPrefill)
        shortest_ns = std::min(shortest_ns, drafts[i].window_end_ns - drafts[i].window_start_ns);
  const double usual_ns = median_of(std::vector<double>(lengths.begin(), lengths.end()));
  const bool tells =
      shortest_ns != std::numeric_limits<int64_t>::max() && static_cast<double>(shortest_ns) > kMuchLonger * usual_ns;
  return tells ? static_cast<int64_t>((usual_ns + static_cast<double>(shortest_ns)) / 2)
               : std::numeric_limits<int64_t>::max();
}

void add_steps_of(const std::vector<HostEvent>& events, const std::vector<TimeSpan>& unrecorded,
                  std::map<std::string, StageEvents>& stages, std::vector<StepDraft>& drafts) {
  std::map<uint64_t, std::map<std::string, StageEvents>::const_iterator> by_anchor;
  for (auto stage = stages.begin(); stage != stages.end(); ++stage)
    if (stage->second.known) by_anchor[stage->second.anchor] = stage;
  std::vector<StepDraft> found;
  std::map<std::string, std::vector<int64_t>> lengths;
  size_t previous = events.size();  // the anchor before
  for (size_t e = 0; e < events.size(); ++e) {
    const auto next = by_anchor.find(events[e].key);
    if (next == by_anchor.end()) continue;
    const size_t at = std::exchange(previous, e);
    if (at == events.size()) continue;
    const StageEvents& before = by_anchor.at(events[at].key)->second;
    const auto& [name, stage] = *next->second;
    const StepDraft& like = drafts[stage.steps.back()];
    // A prompt does not begin where the step before it ended.
    if (like.kind != StageKind::kDecode && like.kind != StageKind::kMixed) continue;
    const int64_t start_ns = events[at].time_ns + before.tail_ns, end_ns = events[e].time_ns + stage.tail_ns;
    if (start_ns >= end_ns || !RecordedSpans::holds(unrecorded, start_ns, end_ns)) continue;
    if (!all_in_keys(events, at + 1, e, before, stage)) continue;
    found.push_back(unseen_step(like, start_ns, end_ns));
    lengths[name].push_back(end_ns - start_ns);
  }
  std::map<std::string, int64_t> longest;
  for (const auto& [name, of_stage] : lengths)
    longest[name] = std::min(pause_of(of_stage), longest_of(stages, drafts, of_stage));
  for (StepDraft& draft : found) {
    const std::string name = draft.stage.empty() ? std::string(name_of(draft.kind)) : draft.stage;
    if (draft.window_end_ns - draft.window_start_ns <= longest.at(name)) drafts.push_back(std::move(draft));
  }
}

}  // namespace

void add_recurring_steps(const Trace& trace, const RecordedSpans& recorded, std::vector<StepDraft>& steps) {
  if (trace.recurring_calls.empty()) return;
  std::map<ThreadKey, std::map<std::string, StageEvents>> threads;
  std::set<ThreadId> named;
  for (DraftIndex i = 0; i < steps.size(); ++i) {
    const StepDraft& step = steps[i];
    if (step.thread == kNoRow) continue;
    if (step.source != StageSource::kDetected || step.unseen) named.insert(step.thread);
    const std::string name = step.stage.empty() ? std::string(name_of(step.kind)) : step.stage;
    threads[{step.device, step.thread}][name].steps.push_back(i);
  }
  for (auto& [place, stages] : threads) {
    const std::vector<TimeSpan>& unrecorded = recorded.unrecorded(place.device);
    if (named.count(place.thread) > 0 || unrecorded.empty()) continue;
    const std::vector<HostEvent> events = events_of(trace, place.thread);
    for (auto& [name, stage] : stages) count_keys(events, steps, stage);
    for (auto& [name, stage] : stages) choose_anchor(stages, stage);
    for (auto& [name, stage] : stages)
      if (stage.known) learn(events, steps, stage);
    add_steps_of(events, unrecorded, stages, steps);
  }
}

}  // namespace llmprof
