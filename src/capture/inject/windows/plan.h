// When kernels are recorded: a state machine over what is known of the program's steps (step_keys.h). It reads no clock
// and touches nothing: it is told the time and what is seen, and answers whether to record.
//
// Full recording goes on from the first kernel until every stage that recurs has enough steady occurrences recorded
// whole, within bounds; where the waits of the host tell steps apart, no longer than that. One pause and one short
// window follow, so that recorded and unrecorded steps can be compared: that much is the minimum, whatever it costs.
// From then on pauses are as long as the budget asks for, the mean slow-down of the whole run at most. A stage that
// still lacks occurrences is waited for, a third of the time at most: a window is opened before it is due. Where a
// graph is made in a pause, what the program does from then on was never seen, and a window is opened at once; where it
// is made while full recording goes on, that ends with steps that began behind it.
//
// Attaching and detaching CUPTI holds the program up, so a window begins and ends between steps where that can be had:
// in an idle moment, at the end of an outermost range, and only after some patience anywhere.
#pragma once

#include <cstdint>

#include "capture/inject/windows/step_keys.h"

namespace llmprof::inject {

// Of steps that cannot be told apart by waits of the host; others are recorded for as long as they take to be complete.
constexpr int64_t kFullLeastNs = 1'000'000'000;
constexpr int64_t kFullMostNs = 60'000'000'000;
// Where nothing has recurred yet, and code was loaded or memory allocated a moment ago: a large model loads.
constexpr int64_t kFullLoadingMostNs = 120'000'000'000;
constexpr int64_t kFirstPauseNs = 2'000'000'000;
constexpr int64_t kWindowNs = 500'000'000;
constexpr int64_t kWindowMostNs = 5'000'000'000;

class WindowPlan {
 public:
  // Where the program is when it is asked.
  enum class Place : uint8_t { kAnywhere, kBetweenSteps };

  void begin(double budget_frac) { budget_ = budget_frac; }
  // The first kernel was seen: the clock of the plan starts.
  void started(int64_t now_ns);
  bool is_started() const { return started_ns_ != 0; }

  // Whether to record from now on. `attached`: CUPTI is in the process, so that a change costs next to nothing.
  bool decide(int64_t now_ns, const StepKeys::Summary& steps, Place place, bool attached);
  // A change is wanted, and a better place for it waited for: to be asked at the next one.
  bool waits_for_place() const { return wanted_ns_ != 0; }
  // A stage that was hardly ever recorded begins: record it now, to its end. False if it is recorded already.
  bool open_for_rare(int64_t now_ns);
  void rare_ended(int64_t now_ns);

  // Recording was switched, which took so long; or CUPTI was taken out.
  void switched(int64_t took_ns) { spent_ns_ += took_ns, window_spent_ns_ += took_ns; }
  // Nothing was to be recorded for so long (ctl, capture range): the plan goes on where it stopped.
  void paused(int64_t for_ns);

  bool records() const { return phase_ != Phase::kPause; }
  // When it must be asked again.
  int64_t next_ns() const { return next_ns_; }

  // What recording has cost so far, as a share of the time since the first kernel; `measured` says whether the pace of
  // the steps told, or a guess.
  double spent_frac(int64_t now_ns) const;
  bool measured() const { return measured_; }
  double cost() const { return cost_; }
  double budget() const { return budget_; }

 private:
  enum class Phase : uint8_t { kFull, kPause, kWindow };

  bool wants_change(int64_t now_ns, const StepKeys::Summary& steps);
  bool waits_for(int64_t now_ns, const StepKeys::Summary& steps) const;
  bool may_wait(int64_t now_ns) const;
  bool has_share(int64_t now_ns, int64_t more_ns) const;
  bool opens_for_graph(int64_t now_ns, const StepKeys::Summary& steps) const;
  bool awaits_graph(int64_t now_ns, const StepKeys::Summary& steps);
  bool ripe(int64_t now_ns, const StepKeys::Summary& steps, Place place, bool attached) const;
  void change(int64_t now_ns, const StepKeys::Summary& steps);
  void close(int64_t now_ns, const StepKeys::Summary& steps);

  double budget_ = 0.02;
  double cost_ = 0.15;  // of a recorded second, until it is measured
  bool measured_ = false;
  Phase phase_ = Phase::kFull;
  bool rare_ = false;     // the window is for a rare stage, for as long as it lasts
  uint32_t awaited_ = 0;  // the window is for stages that lack occurrences: how many did when it began
  uint32_t missed_ = 0;   // windows in a row in which none of them came
  uint32_t windows_ = 0;
  uint32_t graph_windows_ = 0;                    // that were opened because a graph was made
  int64_t graph_awaited_ns_ = 0;                  // since when full recording goes on because one was made
  int64_t first_ended_ns_ = 0, recorded_ns_ = 0;  // behind the first window
  int64_t started_ns_ = 0, phase_ns_ = 0, edge_ns_ = 0, next_ns_ = 0;
  int64_t wanted_ns_ = 0;  // since when a change is wanted
  int64_t window_ns_ = kWindowNs;
  int64_t spent_ns_ = 0, window_spent_ns_ = 0;
};

}  // namespace llmprof::inject
