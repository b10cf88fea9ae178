#include "derive/unseen_steps.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <unordered_map>

#include "derive/call_counts.h"

namespace llmprof {
namespace {

constexpr double kLoopTailFrac = 0.1;  // a loop that ends this share of it after its last step waited for the GPU
constexpr double kMostWait = 0.5;      // of the recorded ranges of a stage

// The device that a thread launches on most; that of its process where it launched nothing itself.
class MainDevices {
 public:
  MainDevices(const Trace& trace, const std::vector<LaunchOrder>& orders) : trace_(trace) {
    std::map<std::pair<Row, int32_t>, size_t> counts;
    for (const LaunchOrder& order : orders) {
      for (const ThreadId thread : order.thread) ++counts[{thread, order.device}];
    }
    for (const std::pair<const std::pair<Row, int32_t>, size_t>& entry : counts) {
      offer(threads_, entry.first.first, entry.first.second, entry.second);
      offer(processes_, process_of(entry.first.first), entry.first.second, entry.second);
    }
    calling_.insert(trace.recurring_calls.thread.begin(), trace.recurring_calls.thread.end());
    calling_.insert(trace.product_rows.thread.begin(), trace.product_rows.thread.end());
    if (!orders.empty()) {
      fallback_ = orders.front().device;
    } else if (!trace.devices.empty()) {
      fallback_ = trace.devices.device.front();
    }
  }

  int32_t of(ThreadId thread) const {
    if (const auto it = threads_.find(thread); it != threads_.end()) return it->second.device;
    if (const auto it = processes_.find(process_of(thread)); it != processes_.end()) return it->second.device;
    return fallback_;
  }
  // Whether it launches in what is recorded, where anything is, or calls what each run of a model calls at any time.
  bool runs_model(ThreadId thread) const {
    return threads_.empty() || threads_.count(thread) > 0 || calling_.count(thread) > 0;
  }
  bool knows_calls() const { return !calling_.empty(); }
  int64_t process_of(ThreadId thread) const {
    return thread < trace_.threads.size() ? trace_.threads.process_id[thread] : -1;
  }

 private:
  struct Most {
    int32_t device = 0;
    size_t count = 0;
  };
  template <class Map, class Key>
  static void offer(Map& map, Key key, int32_t device, size_t count) {
    Most& most = map[key];
    if (count > most.count) most = {device, count};
  }
  const Trace& trace_;
  std::unordered_map<Row, Most> threads_;
  std::unordered_map<int64_t, Most> processes_;
  std::set<ThreadId> calling_;
  int32_t fallback_ = 0;
};

// Share of the recorded ranges of each stage in which the host waits for the GPU, by the stage's name. A range that
// holds several steps waits if it does for one of them.
std::map<std::string, double> waiting_frac(const std::vector<StepDraft>& steps, const HostCalls& calls) {
  std::map<std::string, std::map<AnnotationId, bool>> ranges;
  for (const StepDraft& step : steps) {
    if (step.annotation == kNoRow) continue;
    bool& waits = ranges[step.stage][step.annotation];
    waits = waits || calls.first_blocking(step.thread, step.begin_ns, step.end_ns) != nullptr;
  }
  std::map<std::string, double> out;
  for (const auto& [stage, waits] : ranges) {
    const auto count = std::count_if(waits.begin(), waits.end(), [](const auto& range) { return range.second; });
    out[stage] = static_cast<double>(count) / static_cast<double>(waits.size());
  }
  return out;
}

struct Unseen {
  StageRange range;
  bool evenly = false;
};

// Divides the time of an outer range evenly over its steps [first, last), if the host ran ahead in it: then nothing
// else follows there. `next_ns`: when the next stage range of the thread begins.
bool divide_evenly(std::vector<Unseen>& ranges, size_t first, size_t last, int64_t next_ns) {
  const int64_t start = ranges[first].range.outer_start_ns, end = ranges[first].range.outer_end_ns;
  if (next_ns < end) return false;
  const int64_t count = static_cast<int64_t>(last - first);
  const int64_t tail = end - ranges[last - 1].range.end_ns;
  const int64_t inner = (ranges[last - 1].range.end_ns - ranges[first].range.start_ns) / count;
  if (tail < inner || static_cast<double>(tail) < kLoopTailFrac * static_cast<double>(end - start)) return false;
  for (size_t i = first; i < last; ++i) {
    const int64_t at = static_cast<int64_t>(i - first);
    const int64_t begin = start + (end - start) / count * at;
    ranges[i].range.start_ns = begin;
    ranges[i].range.end_ns = at + 1 == count ? end : begin + (end - start) / count;
    ranges[i].evenly = true;
  }
  return true;
}

// The GPU is taken to have worked all the while.
StepDraft unseen_draft_of(const StageRange& range, const StepName& name, AnnotationKind kind, int32_t device) {
  StepDraft draft = draft_of_range(range, name, kind, device);
  draft.unseen = true;
  draft.gpu_start_ns = draft.last_launch_ns = range.start_ns;
  draft.gpu_end_ns = range.end_ns;
  return draft;
}

// Ranges of one thread that touch unrecorded time and launched nothing.
std::vector<Unseen> unseen_ranges(const StageRanges& stages, size_t first, size_t last,
                                  const std::vector<TimeSpan>& spans, const std::vector<StepDraft>& steps) {
  std::vector<Row> seen;
  for (const StepDraft& step : steps) {
    if (step.annotation != kNoRow && step.thread == stages.ranges[first].thread) seen.push_back(step.annotation);
  }
  std::sort(seen.begin(), seen.end());
  std::vector<Unseen> out;
  for (size_t r = first; r < last; ++r) {
    const StageRange& range = stages.ranges[r];
    if (!RecordedSpans::touches(spans, range.start_ns, range.end_ns)) continue;
    if (!std::binary_search(seen.begin(), seen.end(), range.annotation)) out.push_back({range, false});
  }
  return out;
}

// Texts, without their numbers, of ranges that launched nothing wherever they were recorded: a file that is opened,
// whatever its name says.
std::set<std::string> launching_nothing(const StageRanges& stages, size_t first, size_t last,
                                        const std::vector<TimeSpan>& spans, const std::vector<StepDraft>& steps) {
  std::set<std::string> out;
  for (size_t r = first; r < last; ++r)
    if (!RecordedSpans::touches(spans, stages.ranges[r].start_ns, stages.ranges[r].end_ns))
      out.insert(stage_of_text(stages.names[stages.ranges[r].name].stage));
  for (const StepDraft& step : steps)
    if (step.thread == stages.ranges[first].thread) out.erase(stage_of_text(step.stage));
  return out;
}

// Only one process can stand for a device whose users are unknown: the one with most ranges.
int64_t busiest_process(const StageRanges& stages, const MainDevices& devices) {
  std::map<int64_t, size_t> counts;
  for (const StageRange& range : stages.ranges) ++counts[devices.process_of(range.thread)];
  int64_t best = -1;
  size_t most = 0;
  for (const auto& [process, count] : counts) {
    if (count > most) {
      best = process;
      most = count;
    }
  }
  return best;
}

}  // namespace

void add_unseen_steps(const Trace& trace, const StageRanges& stages, const std::vector<LaunchOrder>& orders,
                      const RecordedSpans& recorded, const HostCalls& calls, std::vector<StepDraft>& steps) {
  if (trace.recorded.empty() || stages.ranges.empty()) return;
  const MainDevices devices(trace, orders);
  const std::map<std::string, double> waits = waiting_frac(steps, calls);
  const auto waits_mostly = [&waits](const std::string& stage) {
    const std::map<std::string, double>::const_iterator known = waits.find(stage);
    return known != waits.end() && known->second >= kMostWait;
  };
  const int64_t only_process = orders.empty() ? busiest_process(stages, devices) : -1;
  const auto starts_after = [](int64_t time, const StageRange& range) { return time < range.start_ns; };
  std::vector<StepDraft> found;
  for (size_t first = 0, last = 0; first < stages.ranges.size(); first = last) {
    const ThreadId thread = stages.ranges[first].thread;
    while (last < stages.ranges.size() && stages.ranges[last].thread == thread) ++last;
    const int64_t process = devices.process_of(thread);
    if (orders.empty() && process != only_process) continue;
    const std::vector<TimeSpan>& spans = recorded.unrecorded_process(process);
    std::vector<Unseen> ranges = unseen_ranges(stages, first, last, spans, steps);
    std::map<int64_t, size_t> steps_of_outer;  // recorded ones included
    for (size_t r = first; r < last; ++r) ++steps_of_outer[stages.ranges[r].outer_start_ns];
    for (size_t i = 0, end = 0; i < ranges.size(); i = end) {
      const StageRange& range = ranges[i].range;
      end = i + 1;
      const bool outer = range.outer_start_ns < range.outer_end_ns;
      while (outer && end < ranges.size() && ranges[end].range.outer_start_ns == range.outer_start_ns &&
             ranges[end].range.outer_end_ns == range.outer_end_ns) {
        ++end;
      }
      if (!outer || steps_of_outer[range.outer_start_ns] != end - i) continue;
      // A host that waits in each of them is not ahead: they last as long as they last.
      const auto waited = [&](const Unseen& unseen) { return waits_mostly(stages.names[unseen.range.name].stage); };
      if (std::all_of(ranges.begin() + static_cast<ptrdiff_t>(i), ranges.begin() + static_cast<ptrdiff_t>(end), waited))
        continue;
      const auto next = std::upper_bound(stages.ranges.begin() + static_cast<ptrdiff_t>(first),
                                         stages.ranges.begin() + static_cast<ptrdiff_t>(last),
                                         ranges[end - 1].range.start_ns, starts_after);
      const bool any = next != stages.ranges.begin() + static_cast<ptrdiff_t>(last);
      divide_evenly(ranges, i, end, any ? next->start_ns : std::numeric_limits<int64_t>::max());
    }
    const std::set<std::string> empty = launching_nothing(stages, first, last, spans, steps);
    for (const Unseen& unseen : ranges) {
      const StepName& name = stages.names[unseen.range.name];
      if (name.kind != StageKind::kVision && !orders.empty() && empty.count(stage_of_text(name.stage)) > 0) continue;
      if (waits.count(name.stage) > 0 && !waits_mostly(name.stage) && !unseen.evenly) continue;
      if (!devices.runs_model(thread) && (name.kind == StageKind::kVision || devices.knows_calls())) continue;
      found.push_back(
          unseen_draft_of(unseen.range, name, trace.annotations.kind[unseen.range.annotation], devices.of(thread)));
    }
  }
  steps.insert(steps.end(), found.begin(), found.end());
}

namespace {

// What the recorded ranges of a stage hold that hold several steps.
struct SeveralSteps {
  size_t ranges = 0, least = std::numeric_limits<size_t>::max(), most = 0;
  bool any_tokens = false, only_tokens = true;  // some, all of the steps make tokens
  std::vector<uint64_t> keys;                   // of calls that came once a step in all of them

  // How many steps a range with such calls holds; 0: nobody can tell.
  size_t count(const std::map<uint64_t, size_t>& calls) const {
    for (const uint64_t key : keys)
      if (const std::map<uint64_t, size_t>::const_iterator seen = calls.find(key); seen != calls.end())
        return seen->second;
    return least == most ? most : 0;
  }
};

std::map<std::string, SeveralSteps> several_steps(const Trace& trace, const RecordedSpans& recorded,
                                                  const CallCounts& calls, const std::vector<StepDraft>& steps) {
  std::unordered_map<Row, std::vector<const StepDraft*>> ranges;
  for (const StepDraft& step : steps)
    if (step.split && !step.unseen && step.kind != StageKind::kVision) ranges[step.annotation].push_back(&step);
  std::map<std::string, SeveralSteps> out;
  const Annotations& notes = trace.annotations;
  for (const auto& [range, pieces] : ranges) {
    const int64_t start = notes.start_ns[range], end = start + notes.dur_ns[range];
    const ThreadId thread = pieces.front()->thread;
    SeveralSteps& stage = out[pieces.front()->stage];
    for (const StepDraft* piece : pieces) {
      const bool tokens = piece->kind == StageKind::kDecode;
      stage.any_tokens = stage.any_tokens || tokens;
      stage.only_tokens = stage.only_tokens && tokens;
    }
    if (RecordedSpans::touches(recorded.unrecorded(pieces.front()->device), start, end)) continue;
    const std::map<uint64_t, size_t> counts = calls.within(thread, start, end);
    if (stage.ranges++ == 0)
      for (const auto& [key, count] : counts) stage.keys.push_back(key);
    std::erase_if(stage.keys, [&counts, held = pieces.size()](uint64_t key) {
      const std::map<uint64_t, size_t>::const_iterator count = counts.find(key);
      return count == counts.end() || count->second != held;
    });
    stage.least = std::min(stage.least, pieces.size());
    stage.most = std::max(stage.most, pieces.size());
  }
  return out;
}

}  // namespace

void divide_unseen_steps(const Trace& trace, const RecordedSpans& recorded, std::vector<StepDraft>& steps) {
  const CallCounts calls(trace.recurring_calls);
  const std::map<std::string, SeveralSteps> several = several_steps(trace, recorded, calls, steps);
  if (several.empty()) return;
  std::vector<StepDraft> more;
  for (StepDraft& step : steps) {
    const std::map<std::string, SeveralSteps>::const_iterator stage = several.find(step.stage);
    if (!step.unseen || stage == several.end() || stage->second.most < 2 || !stage->second.any_tokens) continue;
    const int64_t start = step.gpu_start_ns, length = step.gpu_end_ns - start;
    const size_t count =
        stage->second.only_tokens ? stage->second.count(calls.within(step.thread, start, start + length)) : 0;
    if (count == 0) {
      step.unseen = false;  // of no activities: it goes
      continue;
    }
    const StepDraft whole = step;
    for (size_t i = 0; i < count; ++i) {
      StepDraft piece = whole;
      piece.split = count > 1;
      piece.kind = StageKind::kDecode;
      piece.begin_ns = piece.host_start_ns = piece.gpu_start_ns = piece.last_launch_ns =
          start + length * static_cast<int64_t>(i) / static_cast<int64_t>(count);
      piece.end_ns = piece.gpu_end_ns = start + length * static_cast<int64_t>(i + 1) / static_cast<int64_t>(count);
      if (i == 0)
        step = std::move(piece);
      else
        more.push_back(std::move(piece));
    }
  }
  std::move(more.begin(), more.end(), std::back_inserter(steps));
}

}  // namespace llmprof
