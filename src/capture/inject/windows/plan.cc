#include "capture/inject/windows/plan.h"

#include <algorithm>

namespace llmprof::inject {
namespace {

constexpr int64_t kMs = 1'000'000, kS = 1'000'000'000;
// At most a fifth of the time, however little it costs: recordings are to stay small.
constexpr int64_t kPausesPerWindow = 4;
constexpr int64_t kPauseMostNs = 600 * kS;
// What waiting for stages may cost beyond the budget; and at most a third of the time behind the first window, so that
// most of a short program's steps are its own as well.
constexpr int64_t kMinimumNs = 2 * kS;
constexpr int64_t kAwaitingShare = 3;
constexpr uint32_t kMissedMost = 5;
// A server makes its graphs one after the other, and its steps come behind them all.
constexpr uint32_t kGraphWindowsMost = 3;
// Its steps come within so long; of graphs that are made all the time, as by a server that starts, not for longer.
constexpr int64_t kGraphStepsNs = 2 * kS, kGraphAwaitedMostNs = 5 * kS;
constexpr int64_t kRareMostNs = 5 * kS, kAwaitedMostNs = 10 * kS;
// A place between steps is waited for so long, an idle moment so long.
constexpr int64_t kPlaceLeastNs = 50 * kMs, kPlaceMostNs = 5 * kS, kIdleMostNs = kS;
constexpr int64_t kLoadingNs = 20 * kS;
constexpr int64_t kIdleNs = 20 * kMs;

int64_t scaled(int64_t time_ns, double by) { return static_cast<int64_t>(static_cast<double>(time_ns) * by); }

}  // namespace

void WindowPlan::started(int64_t now_ns) {
  started_ns_ = phase_ns_ = now_ns;
  next_ns_ = now_ns + kFullLeastNs;
}

bool WindowPlan::decide(int64_t now_ns, const StepKeys::Summary& steps, Place place, bool attached) {
  if (!is_started()) return true;
  if (steps.cost >= 0) {
    cost_ = steps.cost;
    measured_ = true;
  }
  if (!wants_change(now_ns, steps)) {
    wanted_ns_ = 0;
  } else {
    if (wanted_ns_ == 0) wanted_ns_ = now_ns;
    next_ns_ = now_ns + kIdleNs;
    if (ripe(now_ns, steps, place, attached)) change(now_ns, steps);
  }
  return records();
}

// Whether to wait for stages that lack occurrences: while that is within the minimum, and while they come.
bool WindowPlan::waits_for(int64_t now_ns, const StepKeys::Summary& steps) const {
  return steps.lacking != 0 && steps.due_ns != 0 && missed_ < kMissedMost && may_wait(now_ns) &&
         has_share(now_ns, std::min(window_ns_, kWindowNs));
}

// Whether a window, with so much more of it, is within its share.
bool WindowPlan::has_share(int64_t now_ns, int64_t more_ns) const {
  const int64_t open_ns = phase_ == Phase::kWindow ? now_ns - phase_ns_ : 0;
  return (recorded_ns_ + open_ns + more_ns) * kAwaitingShare <= now_ns + more_ns - first_ended_ns_;
}

bool WindowPlan::may_wait(int64_t now_ns) const {
  return spent_ns_ <= kMinimumNs + scaled(now_ns - started_ns_, budget_);
}

bool WindowPlan::opens_for_graph(int64_t now_ns, const StepKeys::Summary& steps) const {
  return steps.graph_made_ns >= phase_ns_ && steps.graph_made_ns <= now_ns && graph_windows_ < kGraphWindowsMost &&
         may_wait(now_ns);
}

// Who makes a graph launches it: full recording is not over before such steps were recorded, unless they do not come.
bool WindowPlan::awaits_graph(int64_t now_ns, const StepKeys::Summary& steps) {
  if (steps.graph_made_ns < phase_ns_ || steps.newest_steps_ns >= steps.graph_made_ns ||
      now_ns - steps.graph_made_ns >= kGraphStepsNs)
    return false;
  if (graph_awaited_ns_ == 0) graph_awaited_ns_ = now_ns;
  return now_ns - graph_awaited_ns_ < kGraphAwaitedMostNs;
}

bool WindowPlan::wants_change(int64_t now_ns, const StepKeys::Summary& steps) {
  const int64_t since_ns = now_ns - phase_ns_;
  if (phase_ == Phase::kFull) {
    next_ns_ = now_ns + 100 * kMs;
    if (steps.complete) return !awaits_graph(now_ns, steps);
    if (since_ns < kFullLeastNs) return false;
    // Before anything has recurred, the program loads, compiles or warms up, and its steps are to come. A stage that
    // comes too seldom is waited for by windows of its own.
    const bool all = steps.satisfied > 0 && (steps.lacking == 0 || steps.due_ns > now_ns + kFirstPauseNs);
    const bool loads = steps.satisfied == 0 && now_ns - steps.disturbed_ns < kLoadingNs;
    return (all && !awaits_graph(now_ns, steps)) || since_ns >= (loads ? kFullLoadingMostNs : kFullMostNs);
  }
  if (phase_ == Phase::kPause) {
    next_ns_ = edge_ns_;
    if (waits_for(now_ns, steps)) next_ns_ = std::min(next_ns_, steps.due_ns);
    if (opens_for_graph(now_ns, steps)) next_ns_ = now_ns;
    return now_ns >= next_ns_;
  }
  next_ns_ = rare_ ? std::min(edge_ns_, now_ns + 100 * kMs) : edge_ns_;
  if (now_ns < edge_ns_) return false;
  // An awaited stage has come as soon as fewer lack or its next occurrence is far away.
  if (awaited_ != 0 && steps.lacking >= awaited_ && steps.due_ns != 0 && steps.due_ns <= now_ns + kWindowNs &&
      has_share(now_ns, 0) && since_ns < std::min(kAwaitedMostNs, std::max(2 * steps.due_period_ns, kWindowNs))) {
    next_ns_ = now_ns + 100 * kMs;
    return false;
  }
  return true;
}

bool WindowPlan::ripe(int64_t now_ns, const StepKeys::Summary& steps, Place place, bool attached) const {
  const int64_t waited_ns = now_ns - wanted_ns_;
  const int64_t idle_ns = std::max(kIdleNs, std::min(3 * steps.shortest_ns, 200 * kMs));
  if (!steps.open && now_ns - steps.last_active_ns >= idle_ns) return true;
  const int64_t idle_wait_ns = attached || awaited_ != 0 || steps.lacking != 0 ? 0 : kIdleMostNs;
  if (place == Place::kBetweenSteps) return waited_ns >= idle_wait_ns;
  // Steps without ranges have no ends that could be seen in a pause.
  const int64_t place_wait_ns = std::clamp(2 * steps.longest_ns, kPlaceLeastNs, kPlaceMostNs);
  return waited_ns >= idle_wait_ns + place_wait_ns;
}

void WindowPlan::change(int64_t now_ns, const StepKeys::Summary& steps) {
  wanted_ns_ = 0;
  if (phase_ != Phase::kPause) return close(now_ns, steps);
  const bool early = now_ns < edge_ns_;
  if (opens_for_graph(now_ns, steps)) ++graph_windows_;
  phase_ = Phase::kWindow;
  phase_ns_ = now_ns;
  rare_ = false;
  awaited_ = early ? steps.lacking : 0;
  ++windows_;
  // Windows grow, so that sooner or later one is longer than the program's longest step.
  if (!early && windows_ > 1) window_ns_ = std::min(window_ns_ + window_ns_ / 4, kWindowMostNs);
  edge_ns_ = now_ns + (early ? std::min(window_ns_, kWindowNs) : window_ns_);
  next_ns_ = edge_ns_;
}

void WindowPlan::close(int64_t now_ns, const StepKeys::Summary& steps) {
  const bool first = phase_ == Phase::kFull;
  if (awaited_ != 0) missed_ = steps.lacking >= awaited_ && steps.due_ns <= now_ns ? missed_ + 1 : 0;
  spent_ns_ += scaled(now_ns - phase_ns_, cost_);
  if (first)
    first_ended_ns_ = now_ns;
  else
    recorded_ns_ += now_ns - phase_ns_;
  const int64_t window_spent_ns = window_spent_ns_ + scaled(window_ns_, cost_);
  window_spent_ns_ = 0;
  phase_ = Phase::kPause;
  phase_ns_ = now_ns;
  rare_ = false;
  awaited_ = 0;
  int64_t pause_ns = kFirstPauseNs;
  if (!first) {
    // What one more window costs is to be the budget's share of it and its pause, and of the whole run.
    const int64_t alone_ns = scaled(window_spent_ns, 1 / budget_) - window_ns_;
    const int64_t run_ns = scaled(spent_ns_ + window_spent_ns, 1 / budget_) - (now_ns - started_ns_) - window_ns_;
    pause_ns = std::clamp(std::max(alone_ns, run_ns), kPausesPerWindow * window_ns_, kPauseMostNs);
  }
  edge_ns_ = next_ns_ = now_ns + pause_ns;
}

bool WindowPlan::open_for_rare(int64_t now_ns) {
  if (!is_started() || phase_ != Phase::kPause || !may_wait(now_ns)) return false;
  phase_ = Phase::kWindow;
  phase_ns_ = now_ns;
  edge_ns_ = now_ns + kRareMostNs;
  next_ns_ = now_ns + 100 * kMs;
  wanted_ns_ = 0;
  awaited_ = 0;
  rare_ = true;
  return true;
}

void WindowPlan::rare_ended(int64_t now_ns) {
  if (!rare_) return;
  edge_ns_ = next_ns_ = now_ns;
}

void WindowPlan::paused(int64_t for_ns) {
  for (int64_t* time :
       {&started_ns_, &first_ended_ns_, &phase_ns_, &edge_ns_, &next_ns_, &wanted_ns_, &graph_awaited_ns_})
    if (*time != 0) *time += for_ns;
}

double WindowPlan::spent_frac(int64_t now_ns) const {
  if (!is_started() || now_ns <= started_ns_) return 0;
  const int64_t open_ns = records() ? scaled(now_ns - phase_ns_, cost_) : 0;
  return static_cast<double>(spent_ns_ + open_ns) / static_cast<double>(now_ns - started_ns_);
}

}  // namespace llmprof::inject
