// FASTER, SLOWER, SAME or AMBIGUOUS, from figures of the runs of two sides.
//
// Everything is computed on logarithms, where a change is a difference. At most 2 of 100 comparisons of equal runs are
// to be called FASTER or SLOWER, so these are decided at 98 %, while the interval that is given is one of 95 %.
//
// Enough runs for ranks (five against five, or as many other ways to part them: 100 at least)
//     Mann, Whitney and Wilcoxon: the interval of Hodges and Lehmann over all differences between runs of the two
//     sides. Whatever the runs' distribution is, it errs as often as it says, as long as their order is by chance.
// One run on a side, or two runs more together
//     the noise model (noise.h):  interval  +-sqrt(1.96^2 (s_a^2 + s_b^2) + q^2 (1/n_a + 1/n_b) / 2)  with s a figure's
//     own standard error, a 95 % interval being 3.92 of it wide, and q the quantile of pairs. Where a run has too few
//     steps for an interval, q is counted once more.
// Between these
//     Student's t on the deviation of the runs, pooled, with the model counted as one more degree of freedom (a handful
//     of runs may be alike by chance; programs differ in their noise too much for more). Decided only if all runs of
//     one side are quicker than all of the other as well.
// Figures that are unsure (noise.h) are decided by ranks alone.
// The interval is no narrower than what the own intervals leave.
//
// FASTER, SLOWER: the interval at 98 % excludes 0, and the change is more than kSmallest.
// SAME: the interval, with one run a side that of its own figures alone, lies within what nine of ten pairs of runs of
// an unchanged program differ by, kSmallest at least and kLargestSame at most, or kLargestSameOfRepeats. With repeats
// that is by the deviation that the interval is by. AMBIGUOUS: everything else.
#pragma once

#include <string>
#include <vector>

#include "diff/noise.h"
#include "diff/run.h"

namespace llmprof::diff {

constexpr double kSmallest = 0.01;
// Where equal runs differ by more than that, one pair of them cannot say that nothing has changed.
constexpr double kLargestSame = 0.10;
// Repeats can say more, for there can be more of them: a change that people look for is not to pass for none.
constexpr double kLargestSameOfRepeats = 0.05;
constexpr double kFewestPartings = 100;  // of runs into two sides, for ranks to decide at 98 %

struct SideFigures {
  std::vector<Figure> runs;
  Noise noise;             // by the model
  bool unsure = false;     // FigureOf::unsure
  bool contended = false;  // for its threads waited for a CPU
};

struct Change {
  double a = 0, b = 0;  // medians of the runs
  int64_t a_samples = 0, b_samples = 0;
  double frac = 0, low = 0, high = 0;  // with its 95 % interval
  bool has_interval = true;            // false: unsure figures of too few runs, of which it says nothing
  double noise_frac = 0;               // what two such sides differ by if nothing was changed
  bool by_repeats = false;             // where that comes from
  bool by_ranks = false;               // enough runs for ranks, whatever they are distributed like
  DiffVerdict verdict = DiffVerdict::kAmbiguous;
  std::string reason;
};
// At least one run a side. `more_is_better`: of rates.
Change compare(const SideFigures& a, const SideFigures& b, bool more_is_better);

}  // namespace llmprof::diff
