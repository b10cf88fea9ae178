// TTFT and TPOT over runs of one kind, and where their level changed.
//
// A change is sought by ranks, since times of runs have outliers and no known distribution. Of every split of a series
// in two, the Mann-Whitney statistic says how unlikely the two parts are as parts of one (Mann and Whitney 1947, "On a
// test of whether one of two random variables is stochastically larger than the other"). There is a change if that
// probability times the number of splits (Bonferroni) is at most kFalseAlarmsMost for any of them; of those it is the
// one whose parts lie nearest to their medians (least absolute deviations). Then each part is looked at by itself
// (binary segmentation: Scott and Knott 1974, "A cluster analysis method for grouping means in the analysis of
// variance"). So at most that share of series of independent runs without a change is said to have one. Runs are not
// quite independent: a machine that is warm for an hour can look like a change, and is one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "results/runs.h"

namespace llmprof::serve {

constexpr double kFalseAlarmsMost = 0.025;
constexpr size_t kPartLeast = 4;  // runs before and after a change: with 5 and 5, all apart, one is found

struct Change {
  size_t at = 0;                 // the first value of the new level
  double before = 0, after = 0;  // medians of the values up to the changes beside it, in the unit of the values
  double probability = 1;        // of the least likely split where there is no change, all splits taken together
};

// In the order of the values, which must be finite. Nothing where there are fewer than 2 * kPartLeast.
std::vector<Change> find_changes(std::span<const double> values);

// Two-sided probability of a Mann-Whitney statistic at least as far from m * n / 2 as `u` is, with no difference: exact
// by counting for m + n <= 30 (where values are equal, at most too large), else by the normal distribution with `ties`,
// the sum of t^3 - t over groups of t equal values.
double mann_whitney(size_t m, size_t n, double u, double ties);

// One series for each kind, name and GPU of which at least two whole runs have a figure, the longest first.
struct Trend {
  RunKind kind = RunKind::kRun;
  std::string name, gpu;
  struct Point {
    int64_t number = 0, start_unix_ns = 0;
    OptDouble ttft_ms, tpot_ms;
  };
  std::vector<Point> points;  // the oldest first
  // `at` counts the points that have the figure.
  std::vector<Change> ttft_changes, tpot_changes;
};
// `runs`: in any order.
std::vector<Trend> trends_of(const std::vector<RunRow>& runs);

}  // namespace llmprof::serve
