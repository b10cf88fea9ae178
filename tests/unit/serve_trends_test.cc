#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "serve/trends.h"

namespace llmprof::serve {
namespace {

std::vector<double> noise(std::mt19937_64& random, size_t n, double level, double spread) {
  std::normal_distribution<double> normal(level, spread);
  std::vector<double> out(n);
  for (double& value : out) value = normal(random);
  return out;
}

std::vector<double> joined(std::vector<double> a, const std::vector<double>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// Every choice of m ranks out of m + n, counted by going through them all.
double by_enumeration(size_t m, size_t n, double u) {
  std::vector<int> chosen(m + n, 0);
  std::fill(chosen.begin(), chosen.begin() + static_cast<std::ptrdiff_t>(m), 1);
  const double least = std::min(u, static_cast<double>(m * n) - u);
  double all = 0, tail = 0;
  do {
    double rank_sum = 0;
    for (size_t i = 0; i < chosen.size(); ++i) rank_sum += chosen[i] * static_cast<double>(i + 1);
    const double statistic = rank_sum - static_cast<double>(m * (m + 1)) / 2;
    all += 1;
    tail += statistic <= least ? 1 : 0;
  } while (std::prev_permutation(chosen.begin(), chosen.end()));
  return std::min(1.0, 2 * tail / all);
}

TEST(Trends, probabilities_are_those_of_all_choices) {
  for (const size_t m : {1, 2, 4, 5, 6})
    for (const size_t n : {1, 3, 4, 7})
      for (size_t u = 0; u <= m * n; ++u)
        EXPECT_NEAR(mann_whitney(m, n, static_cast<double>(u), 0), by_enumeration(m, n, static_cast<double>(u)), 1e-12)
            << m << " " << n << " " << u;
  // Closed form: of C(10, 5) choices two are as extreme.
  EXPECT_DOUBLE_EQ(mann_whitney(5, 5, 0, 0), 2.0 / 252);
  EXPECT_DOUBLE_EQ(mann_whitney(15, 15, 225, 0), 2.0 / 155117520);
}

TEST(Trends, for_many_runs_the_normal_distribution_is_near) {
  // 15 and 15 exactly, against 16 and 15 by the approximation, at the same distance from the middle.
  const double exact = mann_whitney(15, 15, 60, 0);
  const double near = mann_whitney(16, 15, 120 - (112.5 - 60) * std::sqrt(16 * 15 * 32.0 / (15 * 15 * 31.0)), 0);
  EXPECT_NEAR(near / exact, 1, 0.06);
  EXPECT_DOUBLE_EQ(mann_whitney(20, 20, 200, 0), 1);
  EXPECT_DOUBLE_EQ(mann_whitney(20, 20, 200, 40.0 * 40 * 40 - 40), 1) << "all values equal";
}

TEST(Trends, a_change_is_found_where_it_is) {
  std::mt19937_64 random(7);
  int found = 0, exact = 0;
  constexpr int kSeries = 200;
  for (int i = 0; i < kSeries; ++i) {
    const size_t before = 6 + random() % 20, after = 6 + random() % 20;
    // One after the other: compilers differ in the order of arguments.
    const std::vector<double> first = noise(random, before, 20, 0.5);
    const std::vector<double> values = joined(first, noise(random, after, 23, 0.5));
    const std::vector<Change> changes = find_changes(values);
    const auto nearest = std::find_if(changes.begin(), changes.end(), [&](const Change& change) {
      return change.at + 1 >= before && change.at <= before + 1;
    });
    if (nearest == changes.end()) continue;
    ++found;
    exact += nearest->at == before ? 1 : 0;
    EXPECT_NEAR(nearest->after - nearest->before, 3, 1.2);
  }
  EXPECT_EQ(found, kSeries);
  EXPECT_GE(exact, kSeries * 98 / 100);
}

TEST(Trends, two_changes_are_both_found) {
  std::mt19937_64 random(11);
  std::vector<double> values = noise(random, 15, 20, 0.3);
  values = joined(values, noise(random, 12, 24, 0.3));
  values = joined(values, noise(random, 18, 21, 0.3));
  const std::vector<Change> changes = find_changes(values);
  ASSERT_EQ(changes.size(), 2U);
  EXPECT_EQ(changes[0].at, 15U);
  EXPECT_EQ(changes[1].at, 27U);
  EXPECT_NEAR(changes[0].before, 20, 0.3);
  EXPECT_NEAR(changes[0].after, 24, 0.3);
  EXPECT_NEAR(changes[1].after, 21, 0.3);
}

// Times of runs have a tail to one side and outliers; ranks do not mind.
TEST(Trends, noise_is_seldom_a_change) {
  std::mt19937_64 random(3);
  constexpr int kSeries = 4000;
  for (const size_t n : {8, 10, 14, 20, 30, 31, 60, 200}) {
    int alarms = 0;
    for (int i = 0; i < kSeries; ++i) {
      std::vector<double> values = noise(random, n, 0, 0.2);
      for (double& value : values) value = 20 * std::exp(value) * (random() % 25 == 0 ? 3 : 1);
      alarms += find_changes(values).empty() ? 0 : 1;
    }
    // Three standard deviations above what is promised.
    const double most = kFalseAlarmsMost + 3 * std::sqrt(kFalseAlarmsMost * (1 - kFalseAlarmsMost) / kSeries);
    EXPECT_LE(alarms, most * kSeries) << n << " runs";
    if (n >= 14) {
      EXPECT_GT(alarms, 0) << n << " runs: a bound that is never reached would find nothing";
    }
  }
}

TEST(Trends, five_and_five_all_apart_are_enough) {
  std::vector<double> values = {1, 2, 3, 4, 5, 11, 12, 13, 14, 15};
  ASSERT_EQ(find_changes(values).size(), 1U);
  EXPECT_EQ(find_changes(values)[0].at, 5U);
  EXPECT_DOUBLE_EQ(find_changes(values)[0].before, 3);
  EXPECT_DOUBLE_EQ(find_changes(values)[0].after, 13);
  EXPECT_DOUBLE_EQ(find_changes(values)[0].probability, 3 * 2.0 / 252);
  values.pop_back();
  EXPECT_TRUE(find_changes(values).empty());
}

TEST(Trends, equal_values_and_few_are_no_change) {
  EXPECT_TRUE(find_changes({}).empty());
  EXPECT_TRUE(find_changes(std::vector<double>(7, 1)).empty());
  for (const size_t n : {8, 30, 31, 500}) EXPECT_TRUE(find_changes(std::vector<double>(n, 3.5)).empty()) << n;
  // A step of values that are all equal on either side.
  const std::vector<Change> changes = find_changes(joined(std::vector<double>(20, 1), std::vector<double>(20, 2)));
  ASSERT_EQ(changes.size(), 1U);
  EXPECT_EQ(changes[0].at, 20U);
}

RunRow row(int64_t number, RunKind kind, const std::string& name, OptDouble tpot, RunState state = RunState::kWhole) {
  RunRow out;
  out.number = number;
  out.kind = kind;
  out.name = name;
  out.tpot_ms = tpot;
  out.state = state;
  return out;
}

TEST(Trends, series_are_of_one_kind_name_and_gpu) {
  std::vector<RunRow> rows = {row(9, RunKind::kRun, "a", 3),  row(8, RunKind::kRun, "b", 1),
                              row(7, RunKind::kRun, "a", 2),  row(6, RunKind::kAnalysis, "a", 1),
                              row(5, RunKind::kRun, "a", {}), row(4, RunKind::kRun, "a", 1, RunState::kIncomplete),
                              row(3, RunKind::kRun, "a", 1),  row(2, RunKind::kRun, "a", std::nan("")),
                              row(1, RunKind::kRun, "a", 9)};
  rows.back().gpu = "other";
  const std::vector<Trend> trends = trends_of(rows);
  ASSERT_EQ(trends.size(), 1U);
  ASSERT_EQ(trends[0].points.size(), 3U);
  EXPECT_EQ(trends[0].points[0].number, 3);
  EXPECT_EQ(trends[0].points[2].number, 9);
}

}  // namespace
}  // namespace llmprof::serve
