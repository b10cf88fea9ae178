#include "capture/launch/counter_trial.h"

#include "capture/spool/records.h"

namespace llmprof::launch {
namespace {

// Without steps for so long, the counters are worth more than the comparison; after some such tries it is given up.
constexpr int64_t kOffMostNs = 3'000'000'000;
constexpr uint32_t kFailedMost = 3;

}  // namespace

StepsSeen steps_seen(const session::Control& control) {
  StepsSeen seen;
  seen.unrecorded = true;
  for (const session::Slot& slot : control.slots) {
    if (!session::is_live(slot)) continue;
    seen.unrecorded =
        seen.unrecorded && slot.level.load(std::memory_order_relaxed) < static_cast<uint32_t>(spool::Level::kDefault);
    const uint32_t with = slot.steps_with_counters.load(std::memory_order_relaxed);
    const uint32_t without = slot.steps_without_counters.load(std::memory_order_relaxed);
    if (with + without <= seen.with + seen.without) continue;
    seen.with = with;
    seen.without = without;
    seen.cost = static_cast<double>(slot.counters_cost.load(std::memory_order_relaxed));
    seen.cost_error = static_cast<double>(slot.counters_cost_error.load(std::memory_order_relaxed));
  }
  return seen;
}

bool CounterTrial::sample(int64_t now_ns, const StepsSeen& seen) {
  if (over_) return !too_costly_;
  if (off_) {
    const bool enough = seen.without >= kSteps * (rounds_ + 1);
    if (!enough && seen.unrecorded && now_ns - off_since_ns_ < kOffMostNs) return false;
    rounds_ += enough;
    if (!enough && ++failed_ == kFailedMost) over_ = true;
    off_ = false;
    return true;
  }
  if (seen.with < kSteps * (rounds_ + 1)) return true;
  if (rounds_ == kRounds) {
    judge(seen);
    return !too_costly_;
  }
  if (!seen.unrecorded) return true;
  off_ = true;
  off_since_ns_ = now_ns;
  return false;
}

// Slower by more than the budget, and surely so.
void CounterTrial::judge(const StepsSeen& seen) {
  over_ = true;
  cost_ = seen.cost;
  too_costly_ = seen.cost_error >= 0 && seen.cost - 2 * seen.cost_error > budget_;
}

}  // namespace llmprof::launch
