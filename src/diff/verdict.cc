#include "diff/verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "base/statistics.h"

namespace llmprof::diff {
namespace {

constexpr double kNormal = 1.96;
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

}  // namespace

double t_quantile(int64_t degrees) {
  static constexpr std::array kTable = {12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
                                        2.201,  2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086};
  const size_t at = static_cast<size_t>(std::max<int64_t>(degrees, 1)) - 1;
  // Behind the table within 0.2 % of the true value (Cornish and Fisher's first term).
  return at < kTable.size() ? kTable[at]
                            : kNormal + (kNormal * kNormal * kNormal + kNormal) / (4 * static_cast<double>(degrees));
}

Change compare(const SideFigures& a, const SideFigures& b, bool more_is_better) {
  Change out;
  const double from = middle(a), to = middle(b);
  out.a = std::exp(from), out.b = std::exp(to);
  out.a_samples = samples(a), out.b_samples = samples(b);
  const double change = to - from;
  out.frac = as_frac(change);
  const double n_a = static_cast<double>(a.runs.size()), n_b = static_cast<double>(b.runs.size());
  const int64_t degrees = static_cast<int64_t>(a.runs.size() + b.runs.size()) - 2;
  out.by_repeats = degrees >= 2;
  const std::optional<double> own_a = own_variance(a), own_b = own_variance(b);
  const bool own_known = own_a && own_b;
  // Of one or two steps it is not known what the next would take: at least as different as another run's.
  const double own = own_a.value_or(a.deviation * a.deviation) + own_b.value_or(b.deviation * b.deviation);
  double pair = 0;  // variance of the difference of two single runs
  double half = 0, own_half = kNormal * std::sqrt(own);
  if (out.by_repeats) {
    const double each = (squares(a) + squares(b)) / static_cast<double>(degrees);
    pair = 2 * each;
    const double spread = t_quantile(degrees) * std::sqrt(each / n_a + each / n_b);
    half = own_half = std::max(spread, own_half);
    out.noise_frac = as_frac(spread);
  } else {
    const double between = a.deviation * a.deviation / n_a + b.deviation * b.deviation / n_b;
    pair = a.deviation * a.deviation + b.deviation * b.deviation;
    half = kNormal * std::sqrt(own + between);
    out.noise_frac = as_frac(kNormal * std::sqrt(between));
  }
  out.low = as_frac(change - half), out.high = as_frac(change + half);
  const double alike = as_frac(kNormal * std::sqrt(pair));  // what two single runs differ by
  const double margin = std::clamp(alike, kSmallest, kLargestSame);
  const std::string interval = fmt::format("{:+.1f} to {:+.1f} %", 100 * out.low, 100 * out.high);
  if ((out.low > 0 || out.high < 0) && std::abs(out.frac) > kSmallest) {
    out.verdict = (out.frac > 0) == more_is_better ? DiffVerdict::kFaster : DiffVerdict::kSlower;
    out.reason = "the interval excludes 0";
    return out;
  }
  const bool inside = as_frac(change - own_half) >= -margin && as_frac(change + own_half) <= margin;
  if (inside && (own_known || out.by_repeats) && (out.by_repeats || alike <= kLargestSame)) {
    out.verdict = DiffVerdict::kSame;
    out.reason = fmt::format("within {}, as two runs of an unchanged program are", percent(margin));
  } else if (!out.by_repeats && alike > kLargestSame) {
    out.reason = fmt::format("two runs of an unchanged program differ by up to {}: more repeats a side would tell",
                             percent(alike));
  } else if (!own_known && !out.by_repeats) {
    out.reason = "too few steps or requests for an interval of their own";
  } else {
    out.reason = fmt::format("{} holds 0, and more than {}", interval, percent(margin));
  }
  return out;
}

}  // namespace llmprof::diff
