// FASTER, SLOWER, SAME or AMBIGUOUS, from figures of the runs of two sides.
//
// Everything is computed on logarithms, where a change is a difference. With s_a, s_b the standard error of each side's
// own figures (a 95 % interval is taken to be 3.92 of them wide) and d what runs differ by from one to the next:
// Where a run has too few steps for an interval, s is taken to be d once more.
//   one run a side    d by the noise model (noise.h);  interval  +-1.96 sqrt(s_a^2 + s_b^2 + 2 d^2)
//   repeats           d the pooled deviation of the runs of both sides, with n_a + n_b - 2 degrees of freedom, from two
//                     on;  interval  +-t sqrt(d^2/n_a + d^2/n_b), no less than what the own intervals leave
// FASTER, SLOWER: the interval excludes 0, and the change is more than kSmallest.
// SAME: the interval, with one run a side that of its own figures alone, lies within what two single runs of an
// unchanged program differ by (1.96 sqrt(2) d), kSmallest at least and kLargestSame at most.
// AMBIGUOUS: everything else.
#pragma once

#include <string>
#include <vector>

#include "diff/run.h"

namespace llmprof::diff {

constexpr double kSmallest = 0.01;
// Where equal runs differ by more than that, one pair of them cannot say that nothing has changed.
constexpr double kLargestSame = 0.10;

struct SideFigures {
  std::vector<Figure> runs;
  double deviation = 0;  // by the noise model
};

struct Change {
  double a = 0, b = 0;  // medians of the runs
  int64_t a_samples = 0, b_samples = 0;
  double frac = 0, low = 0, high = 0;  // with its 95 % interval
  double noise_frac = 0;               // what two such sides differ by if nothing was changed
  bool by_repeats = false;             // where that comes from
  DiffVerdict verdict = DiffVerdict::kAmbiguous;
  std::string reason;
};
// At least one run a side. `more_is_better`: of rates.
Change compare(const SideFigures& a, const SideFigures& b, bool more_is_better);

// The 97.5 % quantile of Student's t; at least 1 degree of freedom.
double t_quantile(int64_t degrees);

}  // namespace llmprof::diff
