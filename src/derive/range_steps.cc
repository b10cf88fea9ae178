#include "derive/range_steps.h"

#include <algorithm>
#include <limits>
#include <map>
#include <string>

namespace llmprof {
namespace {

constexpr int64_t kNoNextNs = int64_t{1} << 62;

// End of the host time whose launches belong to a range: what follows it up to the host's wait for it (sampling often
// runs after the range that a server opens around the model), but not into `next_ns`.
int64_t adopt_until(const StageRange& range, int64_t next_ns, std::span<const int64_t> launches,
                    const HostCalls& calls) {
  const auto after = std::lower_bound(launches.begin(), launches.end(), range.end_ns);
  if (after == launches.begin() || *(after - 1) < range.start_ns) return range.end_ns;
  if (calls.first_blocking(range.thread, *(after - 1), range.end_ns) != nullptr) return range.end_ns;
  if (const BlockingCall* call = calls.first_blocking(range.thread, range.end_ns, next_ns)) return call->start_ns + 1;
  const int64_t length = range.end_ns - range.start_ns;
  return next_ns - range.end_ns <= length ? next_ns : range.end_ns;
}

bool any_launch(std::span<const int64_t> launches, int64_t from, int64_t to) {
  const auto it = std::lower_bound(launches.begin(), launches.end(), from);
  return it != launches.end() && *it < to;
}

// A range in which something was launched, with the detected steps whose middle launch lies inside: where a detected
// step begins and ends is not sure to a launch, as the copies before and after it are anybody's.
struct LaunchingRange {
  size_t range = 0;            // in StageRanges::ranges
  size_t first = 0, last = 0;  // in the detected steps
  bool whole = true;           // recorded throughout
};

// What the ranges of one thread hold, and what those of a name typically do.
class RangesOfThread {
 public:
  RangesOfThread(const StageRanges& stages, size_t first, size_t last, std::span<const int64_t> launches,
                 const std::vector<TimeSpan>& unrecorded, const std::vector<StepDraft>& detected)
      : stages_(stages), detected_(detected) {
    const ThreadId thread = stages.ranges[first].thread;
    std::vector<int64_t> middles;
    for (const StepDraft& step : detected)
      middles.push_back(step.thread == thread ? middle_launch(launches, step.begin_ns, step.end_ns) : step.begin_ns);
    size_t at = 0;
    for (size_t r = first; r < last; ++r) {
      const StageRange& range = stages.ranges[r];
      if (!any_launch(launches, range.start_ns, range.end_ns)) continue;
      while (at < detected.size() && middles[at] < range.start_ns) ++at;
      size_t inside = at;
      while (inside < detected.size() && detected[inside].thread == thread && middles[inside] < range.end_ns) ++inside;
      ranges.push_back({r, at, inside, !RecordedSpans::touches(unrecorded, range.start_ns, range.end_ns)});
    }
    for (const LaunchingRange& held : ranges) {
      Counts& counts = counts_[stages.names[stages.ranges[held.range].name].stage];
      (held.whole ? counts.whole : counts.cut).push_back(held.last - held.first);
    }
    for (std::pair<const std::string, Counts>& entry : counts_) {
      // A range that was recorded in part holds more than was seen.
      std::vector<size_t>& steps = entry.second.whole.empty() ? entry.second.cut : entry.second.whole;
      std::sort(steps.begin(), steps.end());
      entry.second.typical = steps[(steps.size() - 1) / 2];
    }
  }

  bool is_split(const LaunchingRange& held) const {
    const StepName& name = stages_.names[stages_.ranges[held.range].name];
    if (name.one_step || name.says_step || held.last - held.first < 2) return false;
    const Counts& counts = counts_.at(name.stage);
    if (counts.typical < 2) return false;
    // What recurs inside a prompt, or inside every one of several ranges of one name, is layers.
    return !detected_[held.first].by_period || (name.kind != StageKind::kPrefill && name.kind != StageKind::kVision &&
                                                counts.whole.size() + counts.cut.size() == 1);
  }

  std::vector<LaunchingRange> ranges;

 private:
  struct Counts {
    std::vector<size_t> whole, cut;  // detected steps of each range
    size_t typical = 0;
  };
  const StageRanges& stages_;
  const std::vector<StepDraft>& detected_;
  std::map<std::string, Counts> counts_;
};

// Steps of one device from the ranges [first, last) of one thread.
void draft_ranges(const Trace& trace, const StageRanges& stages, size_t first, size_t last, int32_t device,
                  std::span<const int64_t> launches, const HostCalls& calls, const RecordedSpans& recorded,
                  const std::vector<StepDraft>& detected, std::vector<StepDraft>& out) {
  const RangesOfThread held(stages, first, last, launches, recorded.unrecorded(device), detected);
  for (const LaunchingRange& one : held.ranges) {
    const StageRange& range = stages.ranges[one.range];
    // Work that follows the range is adopted up to the next range or the next step that no range covers.
    int64_t next_ns = one.range + 1 < last ? stages.ranges[one.range + 1].start_ns : kNoNextNs;
    const std::vector<StepDraft>::const_iterator after =
        std::lower_bound(detected.begin(), detected.end(), range.end_ns,
                         [](const StepDraft& step, int64_t time) { return step.begin_ns < time; });
    if (after != detected.end()) next_ns = std::min(next_ns, after->begin_ns);
    StepDraft draft = draft_of_range(range, stages.names[range.name], trace.annotations.kind[range.annotation], device);
    const int64_t end_ns = adopt_until(range, std::max(next_ns, range.end_ns), launches, calls);
    if (!held.is_split(one)) {
      draft.end_ns = end_ns;
      out.push_back(draft);
      continue;
    }
    draft.split = true;
    for (size_t d = one.first; d < one.last; ++d) {
      StepDraft piece = draft;
      if (d > one.first) {
        piece.begin_ns = detected[d].begin_ns;
        piece.host_start_ns = std::max(detected[d].host_start_ns, range.start_ns);
      }
      piece.end_ns = d + 1 < one.last ? detected[d + 1].begin_ns : end_ns;
      if (detected[d].kind == StageKind::kVision) {
        piece.kind = StageKind::kVision;
        piece.kind_known = true;
      }
      out.push_back(piece);
    }
  }
}

}  // namespace

std::vector<StepDraft> steps_of_ranges(const Trace& trace, const StageRanges& stages, const LaunchOrder& order,
                                       const HostCalls& calls, const RecordedSpans& recorded,
                                       const std::vector<StepDraft>& detected) {
  std::vector<StepDraft> out;
  if (stages.ranges.empty()) return out;
  const LaunchTimes times(order);
  for (const std::pair<const Row, std::span<const int64_t>>& entry : times.by_thread()) {
    const auto by_thread = [](const StageRange& range, ThreadId thread) { return range.thread < thread; };
    const std::vector<StageRange>::const_iterator first =
        std::lower_bound(stages.ranges.begin(), stages.ranges.end(), entry.first, by_thread);
    const std::vector<StageRange>::const_iterator last =
        std::find_if(first, stages.ranges.end(), [&](const StageRange& r) { return r.thread != entry.first; });
    if (first == last) continue;
    draft_ranges(trace, stages, static_cast<size_t>(first - stages.ranges.begin()),
                 static_cast<size_t>(last - stages.ranges.begin()), order.device, entry.second, calls, recorded,
                 detected, out);
  }
  return out;
}

}  // namespace llmprof
