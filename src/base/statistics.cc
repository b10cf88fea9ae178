#include "base/statistics.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace llmprof {
namespace {

constexpr size_t kResamples = 1000;
constexpr size_t kResampledMost = 5000;                               // values
constexpr size_t kStretches = 8, kStretchesMin = 4, kStretchMin = 2;  // and samples of one
constexpr int kShuffles = 64;
constexpr double kLow = 0.025, kHigh = 0.975;

// splitmix64: small, and the same everywhere.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  size_t below(size_t n) {
    state_ += 0x9E3779B97F4A7C15U;
    uint64_t x = state_;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9U;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBU;
    x ^= x >> 31;
    return static_cast<size_t>((static_cast<unsigned __int128>(x) * n) >> 64);
  }

 private:
  uint64_t state_;
};

// Linear in n, and equal to median_of.
double median_in_place(std::vector<double>& values) {
  const size_t n = values.size(), upper = n / 2;
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(upper), values.end());
  const double high = values[upper];
  if (n % 2 == 1) return high;
  return (*std::max_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(upper)) + high) / 2;
}

double resampled_median(const std::vector<double>& values, Random& random, std::vector<double>& scratch) {
  scratch.resize(values.size());
  for (double& value : scratch) value = values[random.below(values.size())];
  return median_in_place(scratch);
}

Interval interval_of(std::vector<double> found) {
  std::sort(found.begin(), found.end());
  return {quantile_of_sorted(found, kLow), quantile_of_sorted(found, kHigh)};
}

// The value of that rank, linear in n; ranks before `from` were looked for already and stand in front.
double ranked_from(std::vector<double>& values, size_t from, size_t rank) {
  const auto at = [&](size_t i) { return values.begin() + static_cast<std::ptrdiff_t>(i); };
  std::nth_element(at(from), at(rank), values.end());
  return values[rank];
}

// Where the medians of resamples lie of which there are infinitely many: of n draws about half are below a value of
// rank k, by a binomial distribution of n and k/n, which for so many is normal with a deviation of sqrt(n)/2 ranks
// (David and Nagaraja, Order Statistics, 2003, section 7.1).
Interval median_ranks(std::vector<double> values) {
  constexpr double kNormal95 = 1.959964;
  const double n = static_cast<double>(values.size());
  const double middle = (n - 1) / 2, reach = kNormal95 * std::sqrt(n) / 2;
  const size_t low = static_cast<size_t>(std::lround(middle - reach)),
               high = static_cast<size_t>(std::lround(middle + reach));
  const double below = ranked_from(values, 0, low);
  return {below, ranked_from(values, low, high)};
}

}  // namespace

double quantile_of_sorted(const std::vector<double>& sorted, double p) {
  const double position = static_cast<double>(sorted.size() - 1) * p;
  const size_t below = static_cast<size_t>(position);
  if (below + 1 >= sorted.size()) return sorted.back();
  return sorted[below] + (position - static_cast<double>(below)) * (sorted[below + 1] - sorted[below]);
}

double median_of(std::vector<double> values) { return median_in_place(values); }

std::optional<SampleSummary> summarize_samples(std::vector<double> values) {
  if (values.empty()) return std::nullopt;
  std::sort(values.begin(), values.end());
  SampleSummary out;
  out.n = static_cast<int64_t>(values.size());
  double sum = 0, squares = 0;
  for (const double x : values) sum += x;
  out.mean = sum / static_cast<double>(out.n);
  for (const double x : values) squares += (x - out.mean) * (x - out.mean);
  if (out.n > 1) out.stddev = std::sqrt(squares / static_cast<double>(out.n - 1));
  out.min = values.front();
  out.q1 = quantile_of_sorted(values, 0.25);
  out.median = quantile_of_sorted(values, 0.5);
  out.q3 = quantile_of_sorted(values, 0.75);
  out.p90 = quantile_of_sorted(values, 0.9);
  out.p99 = quantile_of_sorted(values, 0.99);
  out.max = values.back();
  return out;
}

double weighted_midmean_of(std::vector<WeightedValue> values) {
  std::sort(values.begin(), values.end(),
            [](const WeightedValue& a, const WeightedValue& b) { return a.value < b.value; });
  double all = 0;
  for (const WeightedValue& one : values) all += one.weight;
  const double first = all / 4, last = all * 3 / 4;
  double below = 0, sum = 0, weight = 0;
  for (const WeightedValue& one : values) {
    const double inside = std::min(last, below + one.weight) - std::max(first, below);
    below += one.weight;
    if (inside <= 0) continue;
    sum += inside * one.value;
    weight += inside;
  }
  return sum / weight;
}

Interval bootstrap_median(const std::vector<double>& values, uint64_t seed) {
  if (values.size() > kResampledMost) return median_ranks(values);
  Random random(seed);
  std::vector<double> scratch, found(kResamples);
  for (double& median : found) median = resampled_median(values, random, scratch);
  return interval_of(std::move(found));
}

Interval bootstrap_median_ratio(const std::vector<double>& a, const std::vector<double>& b, uint64_t seed) {
  Random random(seed);
  std::vector<double> scratch, found;
  found.reserve(kResamples);
  for (size_t i = 0; i < kResamples; ++i) {
    const double above = resampled_median(a, random, scratch), below = resampled_median(b, random, scratch);
    if (below > 0) found.push_back(above / below);
  }
  return found.empty() ? Interval{} : interval_of(std::move(found));
}

std::optional<double> noise_between_stretches(const std::vector<double>& in_order, uint64_t seed) {
  const size_t count = std::min(kStretches, in_order.size() / kStretchMin);
  if (count < kStretchesMin) return std::nullopt;
  std::vector<double> logs, scratch;
  for (const double value : in_order) {
    if (!(value > 0)) return std::nullopt;
    logs.push_back(std::log(value));
  }
  const auto variance = [&] {
    double sum = 0, squares = 0;
    for (size_t i = 0; i < count; ++i) {
      const auto at = [&](size_t part) {
        return logs.begin() + static_cast<std::ptrdiff_t>(part * logs.size() / count);
      };
      scratch.assign(at(i), at(i + 1));
      const double median = median_in_place(scratch);
      sum += median;
      squares += median * median;
    }
    const double n = static_cast<double>(count);
    return std::max(0.0, (squares - sum * sum / n) / (n - 1));
  };
  const double seen = variance();
  Random random(seed);
  double drawn = 0;
  for (int shuffle = 0; shuffle < kShuffles; ++shuffle) {
    for (size_t i = logs.size(); i > 1; --i) std::swap(logs[i - 1], logs[random.below(i)]);
    drawn += variance() / kShuffles;
  }
  return std::sqrt(std::max(0.0, seen - drawn));
}

std::vector<double> isotonic_means(const std::vector<double>& values, const std::vector<double>& weights) {
  struct Pool {
    double sum, weight;
    size_t values;
    double mean() const { return sum / weight; }
  };
  std::vector<Pool> pools;
  for (size_t i = 0; i < values.size(); ++i) {
    Pool pool{weights[i] * values[i], weights[i], 1};
    for (; !pools.empty() && pool.mean() < pools.back().mean(); pools.pop_back())
      pool = {pool.sum + pools.back().sum, pool.weight + pools.back().weight, pool.values + pools.back().values};
    pools.push_back(pool);
  }
  std::vector<double> out;
  for (const Pool& pool : pools) out.insert(out.end(), pool.values, pool.mean());
  return out;
}

}  // namespace llmprof
