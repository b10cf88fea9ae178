#include "derive/windows.h"

#include <algorithm>

namespace llmprof {
namespace {

constexpr int64_t kPauseMinNs = 100'000'000;
constexpr int64_t kPauseSteps = 10;
// Host and GPU clocks are aligned to about a microsecond; a wait that ends this little before the GPU did is the one.
constexpr int64_t kClockSlackNs = 10'000;

// End of the first blocking call that starts between the step's last launch and the next step's first, and outlasts
// the step on the GPU; -1 if there is none.
int64_t find_sync(const StepDraft& step, int64_t next_begin_ns, const HostCalls& calls) {
  int64_t from = step.last_launch_ns;
  while (const BlockingCall* call = calls.first_blocking(step.thread, from, next_begin_ns)) {
    if (call->end_ns + kClockSlackNs >= step.gpu_end_ns) return std::max(call->end_ns, step.gpu_end_ns);
    from = call->start_ns + 1;
  }
  return -1;
}

bool makes_tokens(StageKind kind) {
  return kind == StageKind::kPrefill || kind == StageKind::kDecode || kind == StageKind::kMixed ||
         kind == StageKind::kSpeculative;
}

// From the end of the step before it, so that the host's work between them counts. Where kernels are not recorded, that
// may hold ranges that say nothing about the GPU.
bool lasts_from_the_one_before(const StepDraft& step) {
  return step.kind == StageKind::kDecode || step.kind == StageKind::kMixed ||
         (step.kind == StageKind::kSpeculative && !step.unseen);
}

// What the step would last on its own.
int64_t own_start(const StepDraft& step) {
  const bool decodes = lasts_from_the_one_before(step);
  // A host that runs ahead queued the step long before the GPU came to it.
  return decodes && step.sync_ns < 0 ? step.gpu_start_ns : step.host_start_ns;
}

std::vector<int64_t> lengths_of(const std::vector<StepDraft>& steps) {
  std::vector<int64_t> lengths;
  lengths.reserve(steps.size());
  for (size_t i = 0; i < steps.size(); ++i) {
    int64_t start = own_start(steps[i]);
    if (i > 0) start = std::max(start, steps[i - 1].window_end_ns);
    lengths.push_back(std::max<int64_t>(0, steps[i].window_end_ns - start));
  }
  return lengths;
}

}  // namespace

int64_t pause_of(std::vector<int64_t> lengths) {
  const std::vector<int64_t>::iterator median = lengths.begin() + static_cast<ptrdiff_t>(lengths.size() / 2);
  std::nth_element(lengths.begin(), median, lengths.end());
  return std::max(kPauseMinNs, kPauseSteps * std::min(*median, std::numeric_limits<int64_t>::max() / kPauseSteps));
}

RecurringTimes::RecurringTimes(const Trace& trace) : times_(trace.threads.size()) {
  const RecurringCalls& calls = trace.recurring_calls;
  for (Row row = 0; row < calls.size(); ++row)
    if (calls.thread[row] < times_.size()) times_[calls.thread[row]].push_back(calls.time_ns[row]);
  for (std::vector<int64_t>& times : times_) std::sort(times.begin(), times.end());
}

bool RecurringTimes::any(ThreadId thread, int64_t from_ns, int64_t to_ns) const {
  if (thread >= times_.size()) return false;
  const std::vector<int64_t>& times = times_[thread];
  const std::vector<int64_t>::const_iterator next = std::upper_bound(times.begin(), times.end(), from_ns);
  return next != times.end() && *next < to_ns;
}

void set_windows(std::vector<StepDraft>& steps, const HostCalls& calls, const RecurringTimes& recurring,
                 const std::vector<TimeSpan>& unrecorded) {
  if (steps.empty()) return;
  for (size_t i = 0; i < steps.size(); ++i) {
    if (steps[i].host_only) {
      steps[i].window_end_ns = steps[i].end_ns;
      continue;
    }
    const int64_t next = i + 1 < steps.size() ? steps[i + 1].begin_ns : std::numeric_limits<int64_t>::max();
    steps[i].sync_ns = find_sync(steps[i], next, calls);
    steps[i].window_end_ns = steps[i].sync_ns >= 0 ? steps[i].sync_ns : steps[i].gpu_end_ns;
  }
  const int64_t pause_ns = pause_of(lengths_of(steps));
  int64_t previous_end = std::numeric_limits<int64_t>::min();
  for (size_t i = 0; i < steps.size(); ++i) {
    StepDraft& step = steps[i];
    const bool decodes = lasts_from_the_one_before(step);
    const bool cut_off =
        i > 0 && RecordedSpans::touches(unrecorded, previous_end, own_start(step)) &&
        (step.source == StageSource::kDetected || recurring.any(step.thread, previous_end, own_start(step)));
    const bool follows =
        i > 0 && !cut_off && makes_tokens(steps[i - 1].kind) && own_start(step) - previous_end <= pause_ns;
    const bool goes_on = i > 0 && step.continues && steps[i - 1].kind == StageKind::kVision;
    step.window_start_ns = (decodes && follows) || goes_on ? previous_end : std::max(own_start(step), previous_end);
    step.window_end_ns = std::max(step.window_end_ns, step.window_start_ns);
    previous_end = step.window_end_ns;
  }
}

}  // namespace llmprof
