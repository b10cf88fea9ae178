#include "derive/host_waits.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "base/statistics.h"

namespace llmprof {
namespace {

constexpr size_t kStepsMin = 3, kEndsMin = 2;
constexpr double kNearlyAll = 0.9;
constexpr int64_t kBeforeNs = 20'000, kBehindNs = HostWaits::kBehindNs;  // that a wait ends beside a step's window

StringId most_frequent(const std::map<StringId, size_t>& counts) {
  return std::max_element(counts.begin(), counts.end(),
                          [](const auto& a, const auto& b) { return a.second < b.second; })
      ->first;
}

}  // namespace

HostWaits::HostWaits(const Trace& trace, const std::vector<ThreadId>& threads) {
  const HostPlaces& places = trace.host_places;
  for (Row row = 0; row < places.size(); ++row)
    if (places.kind[row] == PlaceKind::kWait && std::binary_search(threads.begin(), threads.end(), places.thread[row]))
      waits_.push_back({places.start_ns[row], places.start_ns[row] + places.dur_ns[row], places.stack[row]});
  std::stable_sort(waits_.begin(), waits_.end(), [](const Wait& a, const Wait& b) { return a.end_ns < b.end_ns; });
}

const HostWaits::Wait* HostWaits::last_in(int64_t from_ns, int64_t to_ns, std::span<const StringId> stacks) const {
  std::vector<Wait>::const_iterator at = std::upper_bound(
      waits_.begin(), waits_.end(), to_ns, [](int64_t time, const Wait& wait) { return time < wait.end_ns; });
  while (at != waits_.begin() && (--at)->end_ns > from_ns)
    if (stacks.empty() || std::binary_search(stacks.begin(), stacks.end(), at->stack)) return &*at;
  return nullptr;
}

std::vector<StringId> HostWaits::stacks() const {
  std::set<StringId> out;
  for (const Wait& wait : waits_) out.insert(wait.stack);
  return {out.begin(), out.end()};
}

const HostWaits::Wait* HostWaits::first_behind(int64_t time_ns) const {
  const std::vector<Wait>::const_iterator at = std::upper_bound(
      waits_.begin(), waits_.end(), time_ns, [](int64_t time, const Wait& wait) { return time < wait.end_ns; });
  return at != waits_.end() ? &*at : nullptr;
}

namespace {

std::optional<StringId> stack_that_ends(const HostWaits& waits, const std::vector<int64_t>& ends_ns) {
  std::map<StringId, size_t> counts;
  for (const int64_t end_ns : ends_ns)
    if (const HostWaits::Wait* wait = waits.last_in(end_ns - kBeforeNs, end_ns + kBehindNs)) ++counts[wait->stack];
  if (counts.empty()) return {};
  const StringId stack = most_frequent(counts);
  const bool ends = counts[stack] >= kEndsMin &&
                    static_cast<double>(counts[stack]) >= kNearlyAll * static_cast<double>(ends_ns.size());
  return ends ? std::optional(stack) : std::nullopt;
}

// The innermost frames that two stacks have in common, of frames joined by " < ".
std::string_view common_frames(std::string_view a, std::string_view b) {
  constexpr std::string_view kJoin = " < ";
  size_t common = 0;
  for (size_t from = 0; from < a.size();) {
    const size_t end = std::min(a.find(kJoin, from), a.size());
    if (b.substr(0, end) != a.substr(0, end) || (b.size() > end && b.substr(end, kJoin.size()) != kJoin)) break;
    common = end;
    from = end + kJoin.size();
  }
  return a.substr(0, common);
}

// Of the innermost frames of the stack that ends the latest step, as many as nearly all steps end with, two at the
// least: all stacks that begin with them.
std::vector<StringId> stacks_with_common_frames(const Trace& trace, const HostWaits& waits,
                                                const std::vector<TimeSpan>& steps) {
  std::vector<std::string_view> ending;
  for (const TimeSpan& step : steps)
    if (const HostWaits::Wait* wait = waits.last_in(step.end_ns - kBeforeNs, step.end_ns + kBehindNs))
      ending.push_back(trace.text(wait->stack));
  if (ending.size() < kEndsMin) return {};
  std::map<std::string_view, size_t> counts;  // by frames in common with the latest
  for (const std::string_view stack : ending) ++counts[common_frames(ending.back(), stack)];
  const auto enough = [&](size_t count) {
    return count >= kEndsMin && static_cast<double>(count) >= kNearlyAll * static_cast<double>(steps.size());
  };
  std::string_view frames;
  size_t count = 0;
  for (auto longest = counts.rbegin(); longest != counts.rend() && !enough(count); ++longest) {
    frames = longest->first;
    count += longest->second;
  }
  if (!enough(count) || frames.find(" < ") == std::string_view::npos) return {};
  std::vector<StringId> out;
  for (const StringId stack : waits.stacks())
    if (common_frames(frames, trace.text(stack)) == frames) out.push_back(stack);
  size_t once = 0;
  for (const TimeSpan& step : steps) {
    const int64_t from_ns = step.start_ns + kBehindNs;  // behind what ended the step before
    const HostWaits::Wait* const last = waits.last_in(from_ns, step.end_ns + kBehindNs, out);
    once += last != nullptr && waits.last_in(from_ns, last->end_ns - 1, out) == nullptr ? 1 : 0;
  }
  return enough(once) ? out : std::vector<StringId>();
}

}  // namespace

std::vector<StringId> stacks_that_end(const Trace& trace, const HostWaits& waits, const std::vector<TimeSpan>& steps) {
  std::vector<int64_t> ends_ns;
  for (const TimeSpan& step : steps) ends_ns.push_back(step.end_ns);
  if (const std::optional<StringId> one = stack_that_ends(waits, ends_ns)) return {*one};
  if (steps.empty()) return {};
  if (const std::optional<StringId> one = stack_that_ends(waits, {ends_ns.begin() + 1, ends_ns.end()})) return {*one};
  std::vector<StringId> several = stacks_with_common_frames(trace, waits, steps);
  if (several.empty()) several = stacks_with_common_frames(trace, waits, {steps.begin() + 1, steps.end()});
  return several;
}

namespace {

// The detected steps of one thread that make tokens, in order, and the code that fetches what each of them made.
struct Fetched {
  std::vector<size_t> steps;
  std::vector<StringId> stacks;
  bool whole = true;  // every one is known to be fetched
};

void settle_thread(const Fetched& fetched, std::vector<StepDraft>& steps) {
  constexpr double kLonger = 1.25;
  std::map<StringId, std::vector<double>> gpu_ns;
  std::map<StringId, size_t> counts;
  for (size_t i = 0; i < fetched.steps.size(); ++i) {
    gpu_ns[fetched.stacks[i]].push_back(static_cast<double>(steps[fetched.steps[i]].gpu_ns));
    ++counts[fetched.stacks[i]];
  }
  const StringId usual = most_frequent(counts);
  const double usual_ns = median_of(gpu_ns[usual]);
  for (const auto& [stack, times_ns] : gpu_ns) {
    if (stack == usual || median_of(times_ns) < kLonger * usual_ns) continue;
    bool lead = true;
    for (size_t i = 0; i + 1 < fetched.steps.size(); ++i)
      lead = lead && (fetched.stacks[i] != stack || fetched.stacks[i + 1] == usual);
    if (!lead) continue;
    for (size_t i = 0; i < fetched.steps.size(); ++i) {
      if (fetched.stacks[i] != stack) continue;
      StepDraft& step = steps[fetched.steps[i]];
      step.kind = StageKind::kPrefill;
      step.new_tokens = -1;  // rows are those of one token of each sequence
      step.tokens_sure = false;
    }
  }
}

}  // namespace

void settle_by_waits(const Trace& trace, std::vector<StepDraft>& steps) {
  if (trace.host_places.empty()) return;
  std::map<std::pair<int32_t, ThreadId>, Fetched> threads;
  std::map<ThreadId, HostWaits> waits;
  for (size_t i = 0; i < steps.size(); ++i) {
    const StepDraft& step = steps[i];
    if (step.thread == kNoRow || step.unseen || step.host_only) continue;
    Fetched& fetched = threads[{step.device, step.thread}];
    if (step.source != StageSource::kDetected || step.kind != StageKind::kDecode || step.continues) {
      fetched.whole = false;
      continue;
    }
    const HostWaits& own = waits.try_emplace(step.thread, trace, std::vector<ThreadId>{step.thread}).first->second;
    const HostWaits::Wait* const wait = own.first_behind(step.last_launch_ns);
    fetched.whole = fetched.whole && wait != nullptr && wait->stack != StringId::kEmpty;
    fetched.steps.push_back(i);
    fetched.stacks.push_back(wait != nullptr ? wait->stack : StringId::kEmpty);
  }
  for (const auto& [place, fetched] : threads)
    if (fetched.whole && fetched.steps.size() >= kStepsMin) settle_thread(fetched, steps);
}

}  // namespace llmprof
