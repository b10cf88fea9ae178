// Hand values, and how often intervals hold the truth on draws whose truth is known.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "base/statistics.h"

namespace llmprof {
namespace {

TEST(Statistics, NothingOfNoValues) { EXPECT_FALSE(summarize_samples({}).has_value()); }

TEST(Statistics, OneValueHasNoSpread) {
  const SampleSummary s = *summarize_samples({7.5});
  EXPECT_EQ(s.n, 1);
  for (const double x : {s.mean, s.min, s.q1, s.median, s.q3, s.p90, s.p99, s.max}) EXPECT_EQ(x, 7.5);
  EXPECT_EQ(s.stddev, 0);
  EXPECT_EQ(s.iqr_frac(), 0);
}

// 2 4 4 4 5 5 7 9: sum 40, squared distances from 5: 9+1+1+1+0+0+4+16 = 32, over 7.
TEST(Statistics, HandValues) {
  const SampleSummary s = *summarize_samples({9, 4, 5, 2, 4, 7, 5, 4});
  EXPECT_EQ(s.n, 8);
  EXPECT_DOUBLE_EQ(s.mean, 5);
  EXPECT_DOUBLE_EQ(s.stddev, std::sqrt(32.0 / 7));
  EXPECT_DOUBLE_EQ(s.min, 2);
  EXPECT_DOUBLE_EQ(s.q1, 4);        // rank 1.75, between 4 and 4
  EXPECT_DOUBLE_EQ(s.median, 4.5);  // rank 3.5, between 4 and 5
  EXPECT_DOUBLE_EQ(s.q3, 5.5);      // rank 5.25, between 5 and 7
  EXPECT_DOUBLE_EQ(s.p90, 7.6);     // rank 6.3, between 7 and 9
  EXPECT_NEAR(s.p99, 8.86, 1e-12);  // rank 6.93
  EXPECT_DOUBLE_EQ(s.max, 9);
  EXPECT_DOUBLE_EQ(s.iqr_frac(), 1.5 / 4.5);
}

TEST(Statistics, MedianOfEvenOddAndUnsorted) {
  EXPECT_DOUBLE_EQ(median_of({3, 1, 2}), 2);
  EXPECT_DOUBLE_EQ(median_of({4, 1, 3, 2}), 2.5);
  EXPECT_DOUBLE_EQ(median_of({-1, -5}), -3);
  // The mean of the rest does not matter.
  EXPECT_DOUBLE_EQ(median_of({1, 2, 3, 4, 1e18}), 3);
}

TEST(Statistics, AWeightedMidmeanIsOfTheMiddleHalfOfTheWeight) {
  EXPECT_DOUBLE_EQ(weighted_midmean_of({{3, 1}, {1, 1}, {4, 1}, {2, 1}}), 2.5);
  // 4 of 12 lie below 2, and the middle half begins at 3: one part of 0, three of 2 and two of 7.
  EXPECT_DOUBLE_EQ(weighted_midmean_of({{7, 5}, {0, 4}, {2, 3}}), (1 * 0 + 3 * 2 + 2 * 7) / 6.0);
  EXPECT_DOUBLE_EQ(weighted_midmean_of({{7, 0.5}}), 7);
  // Less than a quarter of the weight at an end does not matter.
  EXPECT_DOUBLE_EQ(weighted_midmean_of({{1, 2}, {2, 6}, {1e9, 2}}), 2);
}

TEST(Statistics, QuantilesAtTheEnds) {
  const std::vector<double> sorted = {10, 20, 40};
  EXPECT_DOUBLE_EQ(quantile_of_sorted(sorted, 0), 10);
  EXPECT_DOUBLE_EQ(quantile_of_sorted(sorted, 0.25), 15);
  EXPECT_DOUBLE_EQ(quantile_of_sorted(sorted, 0.75), 30);
  EXPECT_DOUBLE_EQ(quantile_of_sorted(sorted, 1), 40);
}

TEST(Statistics, IqrFracOfAZeroMedianIsZero) { EXPECT_EQ(summarize_samples({-1, 0, 1})->iqr_frac(), 0); }

TEST(Statistics, BootstrapOfEqualValuesIsAPoint) {
  const Interval i = bootstrap_median(std::vector<double>(20, 3.25));
  EXPECT_EQ(i.low, 3.25);
  EXPECT_EQ(i.high, 3.25);
  const Interval r = bootstrap_median_ratio(std::vector<double>(20, 3), std::vector<double>(10, 2));
  EXPECT_EQ(r.low, 1.5);
  EXPECT_EQ(r.high, 1.5);
}

TEST(Statistics, BootstrapRepeatsWithItsSeedAndVariesWithIt) {
  const std::vector<double> values = {1.0, 1.3, 1.1, 1.7, 1.2, 1.9, 1.05, 1.45};
  const Interval a = bootstrap_median(values, 5), b = bootstrap_median(values, 5);
  EXPECT_EQ(a.low, b.low);
  EXPECT_EQ(a.high, b.high);
  const std::vector<double> wide = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024};
  bool differs = false;
  for (uint64_t seed = 1; seed < 9; ++seed) {
    differs |= bootstrap_median_ratio(wide, values, seed).high != bootstrap_median_ratio(wide, values, seed + 8).high;
  }
  EXPECT_TRUE(differs);
}

TEST(Statistics, RatioWithoutAPositiveDivisorIsEmpty) {
  const Interval r = bootstrap_median_ratio({1, 2, 3}, {0, 0, 0});
  EXPECT_EQ(r.low, 0);
  EXPECT_EQ(r.high, 0);
}

// Of 200 experiments a 95 % interval misses about 10. Of the median of 25 draws a percentile bootstrap comes out
// between 93 and 97 %; the bounds here are three standard deviations (1.5 %) and more away from that, and still exclude
// an interval of half or twice the width.
constexpr int kExperiments = 200;
constexpr double kCoverageMin = 0.87, kCoverageMax = 0.995;

TEST(Statistics, IntervalsHoldTheTruthAsOftenAsTheySay) {
  std::mt19937_64 random(42);
  std::normal_distribution<double> normal(100, 10);
  std::exponential_distribution<double> skewed(1.0);  // median ln 2
  int held_normal = 0, held_skewed = 0, held_ratio = 0;
  for (int e = 0; e < kExperiments; ++e) {
    std::vector<double> a, b, c;
    for (int i = 0; i < 25; ++i) a.push_back(normal(random)), b.push_back(skewed(random));
    for (int i = 0; i < 40; ++i) c.push_back(normal(random) * 2);
    const Interval one = bootstrap_median(a), two = bootstrap_median(b), ratio = bootstrap_median_ratio(c, a);
    held_normal += one.low <= 100 && 100 <= one.high;
    held_skewed += two.low <= std::log(2.0) && std::log(2.0) <= two.high;
    held_ratio += ratio.low <= 2 && 2 <= ratio.high;
  }
  for (const int held : {held_normal, held_skewed, held_ratio}) {
    EXPECT_GE(held, kCoverageMin * kExperiments);
    EXPECT_LE(held, kCoverageMax * kExperiments);
  }
}

TEST(Statistics, IntervalsNarrowWithTheRootOfTheCount) {
  std::mt19937_64 random(7);
  std::normal_distribution<double> normal(100, 10);
  const auto width = [&](int n) {
    double sum = 0;
    for (int e = 0; e < 20; ++e) {
      std::vector<double> values;
      for (int i = 0; i < n; ++i) values.push_back(normal(random));
      const Interval interval = bootstrap_median(values);
      sum += interval.high - interval.low;
    }
    return sum;
  };
  EXPECT_NEAR(width(40) / width(640), 4, 0.9);  // root of 16
}

// Beyond 5,000 values the interval is by ranks: as wide as resamples give just below, and as often right.
TEST(Statistics, IntervalsOfManyValuesAreThoseOfTheirResamples) {
  std::mt19937_64 random(3);
  std::exponential_distribution<double> skewed(1.0);
  const auto drawn = [&](int n) {
    std::vector<double> values;
    for (int i = 0; i < n; ++i) values.push_back(skewed(random));
    return values;
  };
  double resampled = 0, ranked = 0;
  for (int e = 0; e < 30; ++e) {
    const Interval few = bootstrap_median(drawn(5000)), many = bootstrap_median(drawn(5001));
    resampled += few.high - few.low;
    ranked += many.high - many.low;
  }
  EXPECT_NEAR(ranked / resampled, 1, 0.05);
  int held = 0;
  for (int e = 0; e < kExperiments; ++e) {
    const Interval interval = bootstrap_median(drawn(6000));
    held += interval.low <= std::log(2.0) && std::log(2.0) <= interval.high;
  }
  EXPECT_GE(held, kCoverageMin * kExperiments);
  EXPECT_LE(held, kCoverageMax * kExperiments);
  const Interval equal = bootstrap_median(std::vector<double>(7000, 2.5));
  EXPECT_EQ(equal.low, 2.5);
  EXPECT_EQ(equal.high, 2.5);
}

// Values that are drawn one by one have no noise between stretches; those that have theirs in common do, however many.
TEST(Statistics, NoiseBetweenStretchesIsWhatStretchesHaveInCommon) {
  std::mt19937_64 random(11);
  std::normal_distribution<double> normal(0, 1);
  double alone = 0, together = 0;
  for (int e = 0; e < 50; ++e) {
    std::vector<double> drawn, drifting;
    for (int i = 0; i < 400; ++i) drawn.push_back(100 + 5 * normal(random));
    for (int stretch = 0; stretch < 8; ++stretch) {
      const double level = 100 + 5 * normal(random);
      for (int i = 0; i < 50; ++i) drifting.push_back(level + 0.5 * normal(random));
    }
    alone += *noise_between_stretches(drawn) / 50;
    together += *noise_between_stretches(drifting) / 50;
  }
  EXPECT_LT(alone, 0.005);
  EXPECT_NEAR(together, 0.05, 0.01);
  EXPECT_EQ(noise_between_stretches(std::vector<double>(40, 3.0)), 0);
  EXPECT_FALSE(noise_between_stretches({1, 2, 3, 4, 5, 6, 7}).has_value());
  EXPECT_FALSE(noise_between_stretches({1, 2, 3, 4, 0, 6, 7, 8}).has_value());
}

// The closed form (Barlow et al., 1972, theorem 1.4): the smallest weighted mean over what ends at or behind a place,
// the largest of these over what begins at or before it.
TEST(Statistics, IsotonicMeansNeverFall) {
  EXPECT_EQ(isotonic_means({}, {}), std::vector<double>());
  EXPECT_EQ(isotonic_means({1, 2, 2, 5}, {1, 9, 1, 1}), (std::vector<double>{1, 2, 2, 5}));
  EXPECT_EQ(isotonic_means({3, 1, 2}, {1, 1, 1}), (std::vector<double>{2, 2, 2}));
  EXPECT_EQ(isotonic_means({4, 1}, {1, 2}), (std::vector<double>{2, 2}));
  std::mt19937_64 random(5);
  std::uniform_real_distribution<double> any(0.1, 4);
  for (int e = 0; e < 200; ++e) {
    std::vector<double> values, weights;
    for (int i = 0; i < 1 + e % 9; ++i) values.push_back(any(random)), weights.push_back(any(random));
    const std::vector<double> found = isotonic_means(values, weights);
    ASSERT_EQ(found.size(), values.size());
    for (size_t at = 0; at < values.size(); ++at) {
      double largest = -1;
      for (size_t from = 0; from <= at; ++from) {
        double smallest = 1e9, sum = 0, weight = 0;
        for (size_t to = from; to < values.size(); ++to) {
          sum += weights[to] * values[to], weight += weights[to];
          if (to >= at) smallest = std::min(smallest, sum / weight);
        }
        largest = std::max(largest, smallest);
      }
      EXPECT_NEAR(found[at], largest, 1e-9);
    }
  }
}

}  // namespace
}  // namespace llmprof
