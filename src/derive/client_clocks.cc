#include "derive/client_clocks.h"

#include <algorithm>
#include <map>
#include <set>

namespace llmprof {
namespace {

// Differences that are looked at, and requests that bound them: fewer requests leave more differences possible.
constexpr int64_t kDifferenceMaxNs = 10'000'000'000;
constexpr size_t kBoundingRequestsMax = 2'000;
constexpr int kNarrowingMax = 1'000;

// What a request may have waited for: [start, end], both within its wait.
struct WaitedFor {
  std::vector<int64_t> start_ns{}, end_ns{};  // both ascending
};

// Shift by which requests are moved to earlier times. Mirrored, the same looks at later ones.
class Feasible {
 public:
  Feasible(std::vector<TimeSpan> waits, WaitedFor steps, std::vector<TimeSpan> runs)
      : waits_(std::move(waits)), steps_(std::move(steps)), runs_(std::move(runs)) {}

  Feasible mirrored() const {
    Feasible out = *this;
    const auto turn = [](std::vector<TimeSpan>& spans) {
      for (TimeSpan& span : spans) span = {-span.end_ns, -span.start_ns};
    };
    turn(out.waits_);
    turn(out.runs_);
    std::reverse(out.runs_.begin(), out.runs_.end());
    const auto negated = [](const std::vector<int64_t>& values) {
      std::vector<int64_t> result;
      for (size_t i = values.size(); i > 0; --i) result.push_back(-values[i - 1]);
      return result;
    };
    out.steps_ = {negated(steps_.end_ns), negated(steps_.start_ns)};
    return out;
  }

  // Whether a wait lies wholly in recorded time without a step in it.
  bool contradicts(const TimeSpan& wait, int64_t shift_ns) const {
    const TimeSpan moved{wait.start_ns - shift_ns, wait.end_ns - shift_ns};
    if (!in_one_run(runs_, moved.start_ns, moved.end_ns)) return false;
    const size_t step = first_step(moved.start_ns);
    return step == steps_.end_ns.size() || steps_.end_ns[step] > moved.end_ns;
  }

  bool holds(int64_t shift_ns) const {
    return std::none_of(waits_.begin(), waits_.end(),
                        [&](const TimeSpan& wait) { return contradicts(wait, shift_ns); });
  }

  // The largest shift up to which it holds throughout, from 0 on, where it holds.
  std::optional<int64_t> holds_up_to() const {
    int64_t most = kDifferenceMaxNs + 1;
    for (const TimeSpan& wait : sample()) {
      int64_t shift = 0;
      while (shift < most && !contradicts(wait, shift)) shift = next_change(wait, shift);
      most = std::min(most, shift);
    }
    return most > kDifferenceMaxNs ? std::nullopt : std::optional<int64_t>(most - 1);
  }

  // No smaller shift from 0 on holds.
  int64_t holds_from() const {
    const std::vector<TimeSpan> waits = sample();
    int64_t shift = 0;
    for (int i = 0; i < kNarrowingMax && shift <= kDifferenceMaxNs; ++i) {
      const int64_t before = shift;
      for (const TimeSpan& wait : waits)
        while (shift <= kDifferenceMaxNs && contradicts(wait, shift)) shift = next_change(wait, shift);
      if (shift == before) break;
    }
    return std::min(shift, kDifferenceMaxNs);
  }

 private:
  size_t first_step(int64_t from_ns) const {
    return static_cast<size_t>(std::lower_bound(steps_.start_ns.begin(), steps_.start_ns.end(), from_ns) -
                               steps_.start_ns.begin());
  }

  // Evenly over all of them.
  std::vector<TimeSpan> sample() const {
    std::vector<TimeSpan> out;
    const size_t stride = waits_.size() / kBoundingRequestsMax + 1;
    for (size_t i = 0; i < waits_.size(); i += stride) out.push_back(waits_[i]);
    return out;
  }

  // The next shift at which the answer of contradicts() may be another one.
  int64_t next_change(const TimeSpan& wait, int64_t shift_ns) const {
    int64_t next = kDifferenceMaxNs + 1;
    const auto consider = [&](int64_t at) {
      if (at > shift_ns) next = std::min(next, at);
    };
    const size_t step = first_step(wait.start_ns - shift_ns);
    if (step < steps_.end_ns.size()) consider(wait.end_ns - steps_.end_ns[step] + 1);  // it ends too late
    if (step > 0) consider(wait.start_ns - steps_.start_ns[step - 1]);                 // one more is inside
    for (const TimeSpan& run : runs_) {
      consider(wait.end_ns - run.end_ns);          // the wait is in it
      consider(wait.start_ns - run.start_ns + 1);  // no longer
    }
    return next;
  }

  std::vector<TimeSpan> waits_;
  WaitedFor steps_;
  std::vector<TimeSpan> runs_;
};

// Steps with prompts where the program names them, else any: what was detected may be called by the wrong kind, and end
// a little late, so that only its start counts.
WaitedFor steps_waited_for(const Trace& trace, int32_t device) {
  const Steps& steps = trace.steps;
  const auto counts = [&](Row row) {
    return steps.device[row] == device && steps.missing[row] != MissingKernels::kAll;
  };
  const auto named_prompt = [&](Row row) {
    return steps.source[row] != StageSource::kDetected &&
           (steps.kind[row] == StageKind::kPrefill || steps.kind[row] == StageKind::kMixed);
  };
  bool named = true, prompts = false;
  for (Row row = 0; row < steps.size(); ++row) {
    if (!counts(row)) continue;
    named = named && steps.source[row] != StageSource::kDetected;
    prompts = prompts || named_prompt(row);
  }
  std::vector<TimeSpan> found;
  for (Row row = 0; row < steps.size(); ++row) {
    if (!counts(row) || (named && prompts && !named_prompt(row))) continue;
    const int64_t end = steps.source[row] == StageSource::kDetected ? steps.gpu_start_ns[row] : steps.gpu_end_ns[row];
    found.push_back({steps.gpu_start_ns[row], end});
  }
  std::sort(found.begin(), found.end(), [](const TimeSpan& a, const TimeSpan& b) { return a.start_ns < b.start_ns; });
  WaitedFor out;
  for (const TimeSpan& span : found) {
    out.start_ns.push_back(span.start_ns);
    out.end_ns.push_back(span.end_ns);
  }
  // One that ends earlier and starts later serves as well.
  for (size_t i = out.end_ns.size(); i > 1; --i) out.end_ns[i - 2] = std::min(out.end_ns[i - 2], out.end_ns[i - 1]);
  return out;
}

// The only device with steps, or why there is none.
std::string only_device(const Trace& trace, int32_t& device) {
  if (trace.base_unix_ns == 0) return "the recording does not say when it was made";
  const std::set<int32_t> devices(trace.steps.device.begin(), trace.steps.device.end());
  if (devices.empty()) return "the recording has no steps of a model";
  if (devices.size() > 1) return "the recording has several GPUs, and which of them served a request is not known";
  device = *devices.begin();
  return {};
}

void compare_clocks(const Feasible& later, ClientClock& clock) {
  const Feasible earlier = later.mirrored();
  if (later.holds(0)) {
    clock.most_ns = later.holds_up_to();
    if (const std::optional<int64_t> back = earlier.holds_up_to()) clock.least_ns = -*back;
    return;
  }
  clock.apart_ns = std::min(later.holds_from(), earlier.holds_from());
  clock.why = "the clocks of client and recorder differ";
}

}  // namespace

std::vector<TimeSpan> recorded_runs(const Trace& trace, int32_t device) {
  int64_t start = INT64_MAX, end = INT64_MIN;
  const auto take = [&](int64_t from, int64_t to) {
    start = std::min(start, from);
    end = std::max(end, to);
  };
  for (const Window& window : trace.windows)
    if (window.device == device) take(window.start_ns, window.end_ns);
  if (start > end) return {};
  // What the host did beside shows that recording went on, with nothing on the GPU.
  for (Row row = 0; row < trace.api_calls.size(); ++row)
    take(trace.api_calls.start_ns[row], trace.api_calls.start_ns[row] + trace.api_calls.dur_ns[row]);
  for (Row row = 0; row < trace.ops.size(); ++row)
    take(trace.ops.start_ns[row], trace.ops.start_ns[row] + trace.ops.dur_ns[row]);
  std::vector<TimeSpan> out;
  const RecordedSpans spans(trace);
  for (const TimeSpan& hole : spans.unrecorded(device)) {
    if (hole.start_ns > start && start < end) out.push_back({start, std::min(hole.start_ns, end)});
    start = std::max(start, hole.end_ns);
  }
  if (start < end) out.push_back({start, end});
  return out;
}

std::vector<ClientClock> client_clocks(const Trace& trace) {
  std::vector<ClientClock> out;
  std::map<StringId, size_t> known;
  const ClientRequests& requests = trace.client_requests;
  const ClientMoments& moments = trace.client_moments;
  int32_t device = -1;
  const std::string why = only_device(trace, device);
  for (const StringId source : requests.source) {
    if (!known.try_emplace(source, out.size()).second) continue;
    out.push_back({.source = source, .device = device, .why = why});
  }
  std::vector<std::vector<TimeSpan>> waits(out.size());
  for (Row row = 0; row < moments.size(); ++row) {
    const size_t clock = known[requests.source[moments.request[row]]];
    ++out[clock].timed;
    if (moments.first_unix_ns[row] >= 0)
      waits[clock].push_back(
          {moments.sent_unix_ns[row] - trace.base_unix_ns, moments.first_unix_ns[row] - trace.base_unix_ns});
  }
  for (ClientClock& clock : out)
    if (clock.timed == 0) clock.why = "the file has no request's time on the wall clock";
  if (!why.empty() || moments.empty()) return out;
  const WaitedFor steps = steps_waited_for(trace, device);
  const std::vector<TimeSpan> runs = recorded_runs(trace, device);
  // What is no longer than any step fits at no difference, and says nothing of it.
  int64_t shortest = INT64_MAX;
  for (size_t i = 0; i < steps.start_ns.size(); ++i) shortest = std::min(shortest, steps.end_ns[i] - steps.start_ns[i]);
  for (std::vector<TimeSpan>& of_clock : waits)
    std::erase_if(of_clock, [&](const TimeSpan& wait) { return wait.end_ns - wait.start_ns <= shortest; });
  for (size_t i = 0; i < out.size(); ++i)
    if (out[i].why.empty()) compare_clocks(Feasible(std::move(waits[i]), steps, runs), out[i]);
  return out;
}

}  // namespace llmprof
