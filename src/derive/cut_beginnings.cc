#include "derive/cut_beginnings.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "derive/host_waits.h"

namespace llmprof {
namespace {

bool is_recorded_step(const StepDraft& step) {
  return step.launches > 0 && !step.unseen && !step.host_only && step.thread != kNoRow;
}

// The first step of each thread behind each time that was not recorded, by when recording began.
std::map<size_t, int64_t> first_steps(const RecordedSpans& recorded, const std::vector<StepDraft>& steps) {
  std::map<std::pair<int32_t, ThreadId>, std::vector<size_t>> threads;
  for (size_t i = 0; i < steps.size(); ++i)
    if (is_recorded_step(steps[i])) threads[{steps[i].device, steps[i].thread}].push_back(i);
  std::map<size_t, int64_t> out;
  for (auto& [place, mine] : threads) {
    std::sort(mine.begin(), mine.end(),
              [&](size_t a, size_t b) { return steps[a].host_start_ns < steps[b].host_start_ns; });
    for (const TimeSpan& span : recorded.unrecorded(place.first)) {
      const auto first = std::lower_bound(mine.begin(), mine.end(), span.end_ns,
                                          [&](size_t i, int64_t time) { return steps[i].host_start_ns < time; });
      if (first != mine.end() && steps[*first].source == StageSource::kDetected) out[*first] = span.end_ns;
    }
  }
  return out;
}

// When a thread called products or graphs, whatever was recorded.
class PassCalls {
 public:
  explicit PassCalls(const Trace& trace) {
    const auto add = [&](const auto& table) {
      for (Row row = 0; row < table.size(); ++row) times_[table.thread[row]].push_back(table.time_ns[row]);
    };
    add(trace.recurring_calls);
    add(trace.product_rows);
    for (auto& [thread, times] : times_) std::sort(times.begin(), times.end());
  }
  bool any_in(ThreadId thread, int64_t from_ns, int64_t to_ns) const {
    const std::map<ThreadId, std::vector<int64_t>>::const_iterator found = times_.find(thread);
    if (found == times_.end()) return false;
    const auto next = std::lower_bound(found->second.begin(), found->second.end(), from_ns);
    return next != found->second.end() && *next < to_ns;
  }

 private:
  std::map<ThreadId, std::vector<int64_t>> times_;
};

// The code that fetches the results of a thread's steps, of each kind of them; those in `but` say nothing of it.
std::vector<StringId> codes_that_end(const Trace& trace, const HostWaits& waits, const std::vector<StepDraft>& steps,
                                     ThreadId thread, const std::map<size_t, int64_t>& but) {
  std::map<StageKind, std::vector<TimeSpan>> windows;
  for (size_t i = 0; i < steps.size(); ++i)
    if (is_recorded_step(steps[i]) && steps[i].thread == thread && but.count(i) == 0)
      windows[steps[i].kind].push_back({steps[i].window_start_ns, steps[i].window_end_ns});
  std::set<StringId> out;
  for (const auto& [kind, spans] : windows)
    for (const StringId code : stacks_that_end(trace, waits, spans)) out.insert(code);
  return {out.begin(), out.end()};
}

}  // namespace

void drop_cut_beginnings(const Trace& trace, const RecordedSpans& recorded, std::vector<StepDraft>& steps) {
  if (trace.host_places.empty()) return;
  const std::map<size_t, int64_t> firsts = first_steps(recorded, steps);
  if (firsts.empty()) return;
  const PassCalls calls(trace);
  std::map<ThreadId, std::pair<HostWaits, std::vector<StringId>>> threads;
  std::vector<size_t> cut;
  for (const auto& [i, recorded_from_ns] : firsts) {
    const ThreadId thread = steps[i].thread;
    auto known = threads.find(thread);
    if (known == threads.end()) {
      HostWaits waits(trace, {thread});
      std::vector<StringId> codes = codes_that_end(trace, waits, steps, thread, firsts);
      known = threads.emplace(thread, std::pair(std::move(waits), std::move(codes))).first;
    }
    const auto& [waits, codes] = known->second;
    const HostWaits::Wait* const fetched = codes.empty() ? nullptr : waits.last_in(-1, recorded_from_ns, codes);
    if (fetched != nullptr && calls.any_in(thread, fetched->end_ns, recorded_from_ns)) cut.push_back(i);
  }
  for (const size_t i : cut) steps[i].launches = 0;
}

}  // namespace llmprof
