#include "base/rank_sum.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace llmprof {
namespace {

// The quantile of the normal distribution above 1/2, by bisection of its distribution function.
double normal_quantile(double probability) {
  double low = 0, high = 10;
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (0.5 * std::erfc(-middle / std::sqrt(2.0)) < probability ? low : high) = middle;
  }
  return low;
}

}  // namespace

// The coefficients of the Gaussian binomial coefficient, the product over i of (1 - q^(n+i)) / (1 - q^i).
std::vector<double> rank_sum_counts(size_t m, size_t n) {
  std::vector<double> counts(m * n + 1, 0);
  counts[0] = 1;
  for (size_t i = 1; i <= m; ++i) {
    for (size_t u = counts.size(); u-- > n + i;) counts[u] -= counts[u - n - i];
    for (size_t u = i; u < counts.size(); ++u) counts[u] += counts[u - i];
  }
  return counts;
}

std::ptrdiff_t rank_interval_place(size_t m, size_t n, double alpha) {
  if (m == 0 || n == 0) return -1;
  if (m + n > kRankSumExactMost) {
    const double pairs = static_cast<double>(m) * static_cast<double>(n);
    const double deviation = std::sqrt(pairs * static_cast<double>(m + n + 1) / 12);
    const double place = std::floor(pairs / 2 - normal_quantile(1 - alpha / 2) * deviation) - 1;
    return static_cast<std::ptrdiff_t>(std::max(-1.0, place));
  }
  const std::vector<double> counts = rank_sum_counts(m, n);
  const double all = std::accumulate(counts.begin(), counts.end(), 0.0);
  std::ptrdiff_t out = -1;
  double below = 0;
  for (size_t u = 0; u < counts.size(); ++u) {
    below += counts[u];
    if (2 * below / all > alpha) break;
    out = static_cast<std::ptrdiff_t>(u);
  }
  return out;
}

}  // namespace llmprof
