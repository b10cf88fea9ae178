// Where the difference of a step's time between two runs comes from. Steps of both are aligned call by call and
// activity by activity (align.h), and replayed (replay/replay.h) with one part after the other exchanged:
//
//   v(S), S a set of parts: the step's window with what belongs to S as in B, the rest as in A. Without `count` in S on
//   A's timeline, with the values of B where a row's part is in S; with `count` on B's timeline, with the values of A
//   where it is not. Rows without a partner keep their own values. Waits, copies, allocations and long host code that
//   one side alone has are there or not by their own part: on the timeline of the other side they cannot be put, so
//   what they bring there is what taking them away changes on their own.
//
// Where both sides have the same launches, `copy` or `other` stands for `count` (exchange.h).
//
// v of no part is A's step, v of all is B's, both as replay gives them back. Each part gets its Shapley value: the
// mean, over all orders in which parts can be exchanged, of what it changes when its turn comes (Shapley, 1953). So
// shares add up to the difference, and no order is preferred. Several pairs of steps next to the medians are averaged.
//
// What recording costs is taken out of both sides where `llmprof peaks` measured it on the machine (undisturbed.h).
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "diff/exchange.h"
#include "diff/match.h"
#include "results/diff.h"

namespace llmprof::diff {

struct Attribution {
  std::vector<DiffShare> shares;  // the largest first
  bool by_replay = true;          // else: sums of kernels by name
  std::string why_not, advice;    // where there are none, or only sums
  bool known() const { return !shares.empty() || why_not.empty(); }
};

// Recorded steps of a run next to its median, without the recorder where that is known, each with the host at the pace
// of a step of another run (pace.h).
struct StepAtPace {
  double ms = 0;                          // their median
  std::optional<double> low_ms, high_ms;  // 95 % of the medians of resamples
  int64_t steps = 0;
  HostPaceRatio pace;  // from the other run to this one
};

// Runs are prepared for replay once; they must outlive it.
class Attributor {
 public:
  Attributor();
  ~Attributor();
  Attributor(const Attributor&) = delete;
  Attributor& operator=(const Attributor&) = delete;

  Attribution attribute(const GroupOfRun& a, const GroupOfRun& b);
  // Whether it has steps whose replay gives them back as they were.
  bool is_replayable(const GroupOfRun& of);
  // Of `run`, at the pace of `at`, which may be the same; nothing where steps cannot be replayed or have too few places
  // in common.
  std::optional<StepAtPace> at_pace(const GroupOfRun& at, const GroupOfRun& run);

 private:
  struct Prepared;
  const Prepared& prepared(const Run& run);
  std::map<const Run*, std::unique_ptr<Prepared>> prepared_;
};

// The Shapley value of each of n parts, n at most 16. `value[set]` for every set of parts, one bit each: 2^n of them.
std::vector<double> shapley(const std::vector<double>& value, size_t parts);

}  // namespace llmprof::diff
