// Whether sampling the hardware counters slows the program by more than it may: early in a run sampling is switched off
// and on again, twice, in time in which kernels are not recorded, and the program's steps with and without it are
// compared. A state machine that is told the time and what the watched processes have published (session::Slot).
#pragma once

#include <cstdint>

#include "capture/session/control.h"

namespace llmprof::launch {

struct StepsSeen {
  bool unrecorded = false;           // no process records kernels now
  uint32_t with = 0, without = 0;    // steady unrecorded steps, counters sampled and not
  double cost = 0, cost_error = -1;  // what sampling slows them by, and its standard error; error -1: not known
};
// Of the process that has shown most steps.
StepsSeen steps_seen(const session::Control& control);

class CounterTrial {
 public:
  explicit CounterTrial(double budget_frac) : budget_(budget_frac) {}
  // Whether counters are to be sampled now.
  bool sample(int64_t now_ns, const StepsSeen& seen);
  bool over() const { return over_; }
  bool too_costly() const { return too_costly_; }
  double cost() const { return cost_; }

  static constexpr uint32_t kSteps = 8, kRounds = 2;  // steps with and without, in each round

 private:
  void judge(const StepsSeen& seen);

  double budget_, cost_ = 0;
  bool off_ = false, over_ = false, too_costly_ = false;
  uint32_t rounds_ = 0, failed_ = 0;
  int64_t off_since_ns_ = 0;
};

}  // namespace llmprof::launch
