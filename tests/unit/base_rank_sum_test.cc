#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "base/rank_sum.h"

namespace llmprof {
namespace {

TEST(RankSum, CountsAreThoseOfAllChoices) {
  // Four of seven ranks, by hand: the sum of the first four is least.
  constexpr size_t kM = 4, kN = 3;
  std::vector<double> expected(kM * kN + 1, 0);
  std::vector<int> chosen = {1, 1, 1, 1, 0, 0, 0};
  std::sort(chosen.begin(), chosen.end());
  do {
    size_t above = 0;
    for (size_t i = 0; i < chosen.size(); ++i)
      for (size_t k = 0; k < i; ++k) above += static_cast<size_t>(chosen[i] == 1 && chosen[k] == 0);
    ++expected[above];
  } while (std::next_permutation(chosen.begin(), chosen.end()));
  EXPECT_EQ(rank_sum_counts(kM, kN), expected);
}

TEST(RankSum, PlacesAreThoseOfTables) {
  // Critical values of Mann and Whitney, two-sided, at 5 and 2 %.
  EXPECT_EQ(rank_interval_place(5, 5, 0.05), 2);
  EXPECT_EQ(rank_interval_place(5, 5, 0.02), 1);
  EXPECT_EQ(rank_interval_place(10, 10, 0.05), 23);
  EXPECT_EQ(rank_interval_place(8, 6, 0.05), 8);
  EXPECT_EQ(rank_interval_place(3, 3, 0.05), -1);
  EXPECT_EQ(rank_interval_place(0, 9, 0.05), -1);
  // By the approximation: never sharper than the table's 317 by more than one.
  EXPECT_NEAR(static_cast<double>(rank_interval_place(30, 30, 0.05)), 317, 3);
}

// Of two samples of one distribution with two modes far apart, no more than alpha are apart.
TEST(RankSum, TheIntervalHoldsWhateverTheDistributionIs) {
  std::mt19937 random(1);
  std::bernoulli_distribution slow(0.5);
  std::uniform_real_distribution<double> jitter(0, 0.1);
  constexpr int kTimes = 4000;
  int apart = 0;
  for (int i = 0; i < kTimes; ++i) {
    std::vector<double> differences;
    std::vector<double> a(5), b(5);
    for (double& value : a) value = (slow(random) ? 2 : 1) + jitter(random);
    for (double& value : b) value = (slow(random) ? 2 : 1) + jitter(random);
    for (const double one : a)
      for (const double other : b) differences.push_back(one - other);
    std::sort(differences.begin(), differences.end());
    const size_t place = static_cast<size_t>(rank_interval_place(5, 5, 0.02));
    apart += static_cast<int>(differences[place] > 0 || differences[differences.size() - 1 - place] < 0);
  }
  EXPECT_LE(apart, kTimes * 2 / 100 + 30);
  EXPECT_GT(apart, 0);
}

}  // namespace
}  // namespace llmprof
