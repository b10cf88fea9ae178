#include "derive/host_waits.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/statistics.h"

namespace llmprof {
namespace {

constexpr size_t kStepsMin = 3, kEndsMin = 2;
constexpr double kNearlyAll = 0.9;

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

const HostWaits::Wait* HostWaits::last_in(int64_t from_ns, int64_t to_ns, std::optional<StringId> stack) const {
  std::vector<Wait>::const_iterator at = std::upper_bound(
      waits_.begin(), waits_.end(), to_ns, [](int64_t time, const Wait& wait) { return time < wait.end_ns; });
  while (at != waits_.begin() && (--at)->end_ns > from_ns)
    if (!stack || at->stack == *stack) return &*at;
  return nullptr;
}

const HostWaits::Wait* HostWaits::first_behind(int64_t time_ns) const {
  const std::vector<Wait>::const_iterator at = std::upper_bound(
      waits_.begin(), waits_.end(), time_ns, [](int64_t time, const Wait& wait) { return time < wait.end_ns; });
  return at != waits_.end() ? &*at : nullptr;
}

std::optional<StringId> stack_that_ends(const HostWaits& waits, const std::vector<int64_t>& ends_ns) {
  // The window ends with the driver's call, the wait with the runtime's around it, or with the one behind a copy that
  // has waited: 12 to 30 us later on a slow host.
  constexpr int64_t kBeforeNs = 20'000, kBehindNs = 100'000;
  std::map<StringId, size_t> counts;
  for (const int64_t end_ns : ends_ns)
    if (const HostWaits::Wait* wait = waits.last_in(end_ns - kBeforeNs, end_ns + kBehindNs)) ++counts[wait->stack];
  if (counts.empty()) return {};
  const StringId stack = most_frequent(counts);
  const bool ends = counts[stack] >= kEndsMin &&
                    static_cast<double>(counts[stack]) >= kNearlyAll * static_cast<double>(ends_ns.size());
  return ends ? std::optional(stack) : std::nullopt;
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
