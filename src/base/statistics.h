// Statistics of repeated measurements. Order statistics lie linearly between ranks: quantile(p) of n sorted values is
// the value at rank p * (n - 1). Intervals are percentile bootstraps with a fixed seed, so a result can be repeated.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace llmprof {

struct SampleSummary {
  int64_t n = 0;
  double mean = 0, stddev = 0;  // stddev of a sample (n - 1); 0 for one value
  double min = 0, q1 = 0, median = 0, q3 = 0, p90 = 0, p99 = 0, max = 0;
  // Interquartile range over the median; 0 where the median is 0.
  double iqr_frac() const { return median > 0 ? (q3 - q1) / median : 0; }
};
// Empty for no values.
std::optional<SampleSummary> summarize_samples(std::vector<double> values);

double quantile_of_sorted(const std::vector<double>& sorted, double p);  // at least one value
double median_of(std::vector<double> values);                            // at least one value

struct WeightedValue {
  double value = 0, weight = 0;
};
// The mean of the middle half of the weight (the interquartile mean): what less than a quarter of it does at either end
// does not matter, and it has four fifths of a mean's precision where values are normally distributed, a median two
// thirds. At least one value of a weight above 0.
double weighted_midmean_of(std::vector<WeightedValue> values);

struct Interval {
  double low = 0, high = 0;
};
// 95 % of the medians of 1,000 resamples, of more than 5,000 values by what resamples would give in the limit; at least
// one value each.
Interval bootstrap_median(const std::vector<double>& values, uint64_t seed = 1);
// The same of median(a) / median(b); values above 0.
Interval bootstrap_median_ratio(const std::vector<double>& a, const std::vector<double>& b, uint64_t seed = 1);

// How much the medians of stretches of time differ by more than so many samples do that are drawn at random: the
// standard deviation of their logarithms, 0 where it is no more. `in_order` of time, above 0. Samples of a moment have
// their noise in common, so that their own spread says little of the next run; what is slow from stretch to stretch is
// not averaged out by more of them. Empty for fewer than eight values.
std::optional<double> noise_between_stretches(const std::vector<double>& in_order, uint64_t seed = 1);

// The values nearest to these, by squares with those weights, that never fall: where values fall, all of the stretch
// have its weighted mean. Isotonic regression by pooling adjacent violators (Barlow, Bartholomew, Bremner, Brunk:
// Statistical Inference under Order Restrictions, 1972). As many weights as values, above 0.
std::vector<double> isotonic_means(const std::vector<double>& values, const std::vector<double>& weights);

}  // namespace llmprof
