#include "diff/verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/math/distributions/students_t.hpp>
#include <cmath>
#include <optional>
#include <utility>

#include "base/rank_sum.h"
#include "base/statistics.h"

namespace llmprof::diff {
namespace {

constexpr double kNormal = 1.96, kNormal98 = 2.326;
constexpr double kAlpha95 = 0.05, kAlpha98 = 0.02;
constexpr double kPrior = 1;            // degrees of freedom that the model counts as, beside a handful of runs
constexpr double kWidth = 2 * kNormal;  // of a 95 % interval, in standard errors

double middle(const SideFigures& side) {
  std::vector<double> values;
  for (const Figure& run : side.runs) values.push_back(std::log(run.value));
  return median_of(std::move(values));
}

// Variance of the mean of a side's own figures; empty where no run has an interval.
std::optional<double> own_variance(const SideFigures& side) {
  double sum = 0;
  size_t known = 0;
  for (const Figure& run : side.runs) {
    if (!run.low) continue;
    const double error = (std::log(*run.high) - std::log(*run.low)) / kWidth;
    sum += error * error;
    ++known;
  }
  if (known == 0) return std::nullopt;
  return sum / static_cast<double>(known) / static_cast<double>(side.runs.size());
}

// Sum of squares around the side's mean.
double squares(const SideFigures& side) {
  double mean = 0, sum = 0;
  for (const Figure& run : side.runs) mean += std::log(run.value) / static_cast<double>(side.runs.size());
  for (const Figure& run : side.runs) sum += (std::log(run.value) - mean) * (std::log(run.value) - mean);
  return sum;
}

int64_t samples(const SideFigures& side) {
  int64_t out = 0;
  for (const Figure& run : side.runs) out += run.samples;
  return out;
}

// Of a difference of logarithms.
double as_frac(double logarithm) { return std::expm1(logarithm); }

std::string percent(double frac) { return fmt::format("{:.1f} %", 100 * frac); }

// Of the difference of logarithms: how far its 95 % interval reaches to either side.
struct Widths {
  double below95 = 0, above95 = 0;
  double own = 0;        // of the own intervals alone
  double noise = 0;      // without these
  double alike = 0;      // what two single runs differ by, by the repeats
  bool decided = false;  // the interval at 98 % excludes 0
  bool by_repeats = false, by_ranks = false;
};

Noise noise_of_pair(const SideFigures& a, const SideFigures& b) {
  const auto both = [&](double Noise::*quantile) {
    return std::sqrt((a.noise.*quantile * (a.noise.*quantile) + b.noise.*quantile * (b.noise.*quantile)) / 2);
  };
  return {both(&Noise::p90), both(&Noise::p95), both(&Noise::p98)};
}

// In how many ways runs can be parted into two such sides.
double partings(size_t n_a, size_t n_b) {
  double out = 1;
  for (size_t i = 1; i <= n_b; ++i) out *= static_cast<double>(n_a + i) / static_cast<double>(i);
  return out;
}

std::vector<double> logarithms(const SideFigures& side) {
  std::vector<double> out;
  for (const Figure& run : side.runs) out.push_back(std::log(run.value));
  return out;
}

bool are_apart(const std::vector<double>& a, const std::vector<double>& b) {
  const auto [least_a, most_a] = std::minmax_element(a.begin(), a.end());
  const auto [least_b, most_b] = std::minmax_element(b.begin(), b.end());
  return *most_a < *least_b || *most_b < *least_a;
}

Widths widths_by_ranks(const std::vector<double>& a, const std::vector<double>& b, double change) {
  std::vector<double> differences;
  for (const double one : a)
    for (const double other : b) differences.push_back(other - one);
  std::sort(differences.begin(), differences.end());
  const auto interval = [&](double alpha) {
    const size_t place =
        static_cast<size_t>(std::max<std::ptrdiff_t>(0, rank_interval_place(a.size(), b.size(), alpha)));
    return std::pair(differences[place], differences[differences.size() - 1 - place]);
  };
  const auto [low95, high95] = interval(kAlpha95);
  const auto [low98, high98] = interval(kAlpha98);
  Widths out;
  out.by_repeats = out.by_ranks = true;
  // The median of the differences need not be the difference of the medians.
  out.below95 = std::max(0.0, change - low95), out.above95 = std::max(0.0, high95 - change);
  out.noise = (high95 - low95) / 2;
  out.decided = low98 > 0 || high98 < 0;
  return out;
}

double student(double probability, double degrees) {
  return boost::math::quantile(boost::math::students_t(degrees), probability);
}

Widths widths_of(const SideFigures& a, const SideFigures& b, double change, const Noise& noise,
                 const std::optional<double>& own_a, const std::optional<double>& own_b) {
  const double n_a = static_cast<double>(a.runs.size()), n_b = static_cast<double>(b.runs.size());
  const double degrees = n_a + n_b - 2;
  const double model = noise.p95 / (kNormal * std::sqrt(2.0));  // the deviation that gives this quantile
  // Of one or two steps it is not known what the next would take: at least as different as another run's.
  const double own = own_a.value_or(model * model) + own_b.value_or(model * model);
  double each = degrees > 0 ? (squares(a) + squares(b)) / degrees : 0;  // variance of a run
  const std::vector<double> of_a = logarithms(a), of_b = logarithms(b);
  Widths out;
  double sure = 0;  // half of the interval at 98 %
  if (partings(a.runs.size(), b.runs.size()) >= kFewestPartings) {
    out = widths_by_ranks(of_a, of_b, change);
  } else if (degrees >= 2) {
    const double deviation = std::sqrt((kPrior * model * model + degrees * each) / (kPrior + degrees));
    const double error = deviation * std::sqrt(1 / n_a + 1 / n_b);
    out.by_repeats = true;
    each = deviation * deviation;
    out.below95 = out.above95 = out.noise = student(1 - kAlpha95 / 2, kPrior + degrees) * error;
    sure = student(1 - kAlpha98 / 2, kPrior + degrees) * error;
    out.decided = std::abs(change) > sure && are_apart(of_a, of_b);
  } else {
    const double runs = (1 / n_a + 1 / n_b) / 2;
    out.below95 = out.above95 = std::sqrt(kNormal * kNormal * own + noise.p95 * noise.p95 * runs);
    out.noise = noise.p95 * std::sqrt(runs);
    sure = std::sqrt(kNormal98 * kNormal98 * own + noise.p98 * noise.p98 * runs);
    out.decided = std::abs(change) > sure;
  }
  out.alike = kNormal * std::sqrt(2 * each);
  out.own = kNormal * std::sqrt(own);
  out.decided &= out.by_ranks || !(a.unsure || b.unsure);
  if (out.by_repeats) {
    const double known = kNormal * std::sqrt(own_a.value_or(0) + own_b.value_or(0));
    out.below95 = std::max(out.below95, known), out.above95 = std::max(out.above95, known);
    out.decided &= std::abs(change) > kNormal98 / kNormal * known;
  }
  return out;
}

}  // namespace

Change compare(const SideFigures& a, const SideFigures& b, bool more_is_better) {
  Change out;
  const double from = middle(a), to = middle(b);
  out.a = std::exp(from), out.b = std::exp(to);
  out.a_samples = samples(a), out.b_samples = samples(b);
  const double change = to - from;
  out.frac = as_frac(change);
  const Noise noise = noise_of_pair(a, b);
  const std::optional<double> own_a = own_variance(a), own_b = own_variance(b);
  const bool own_known = own_a && own_b;
  const Widths widths = widths_of(a, b, change, noise, own_a, own_b);
  out.by_repeats = widths.by_repeats;
  out.by_ranks = widths.by_ranks;
  out.has_interval = widths.by_ranks || !(a.unsure || b.unsure);
  out.low = as_frac(change - widths.below95), out.high = as_frac(change + widths.above95);
  out.noise_frac = as_frac(widths.noise);
  // What was measured may differ from nothing by as much.
  const double inner_below = out.by_repeats ? widths.below95 : widths.own,
               inner_above = out.by_repeats ? widths.above95 : widths.own;
  const double alike = as_frac(out.by_repeats ? widths.alike : noise.p90);
  const double margin = std::clamp(alike, kSmallest, out.by_repeats ? kLargestSameOfRepeats : kLargestSame);
  if (widths.decided && std::abs(out.frac) > kSmallest) {
    out.verdict = (out.frac > 0) == more_is_better ? DiffVerdict::kFaster : DiffVerdict::kSlower;
    out.reason = "the interval excludes 0, at 98 % too";
    return out;
  }
  const bool inside = as_frac(change - inner_below) >= -margin && as_frac(change + inner_above) <= margin;
  const bool waited = a.contended || b.contended;
  if (inside && (own_known || out.by_repeats) && (out.by_repeats || alike <= kLargestSame)) {
    out.verdict = DiffVerdict::kSame;
    out.reason = fmt::format("within {}, as two runs of an unchanged program are", percent(margin));
  } else if (!out.by_repeats && waited) {
    out.reason = "its threads waited for a CPU that others had: on a machine with nothing else on it more would show";
  } else if (!own_known && !out.by_repeats) {
    out.reason = "too few steps or requests: more of them, or five repeats a side, would tell";
  } else if (!out.by_repeats && alike > kLargestSame) {
    out.reason = fmt::format("two runs of an unchanged program differ by up to {}: five repeats a side would tell",
                             percent(as_frac(noise.p98)));
  } else if (out.low > 0 || out.high < 0) {
    out.reason = widths.by_ranks || !out.by_repeats
                     ? "the interval excludes 0 at 95 %, not at 98: more repeats would tell"
                     : "the interval excludes 0, but some runs of both sides are alike: five repeats a side would tell";
  } else {
    out.reason =
        fmt::format("{:+.1f} to {:+.1f} % holds 0, and more than {}", 100 * out.low, 100 * out.high, percent(margin));
  }
  return out;
}

}  // namespace llmprof::diff
