#include "serve/trends.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <tuple>

#include "base/rank_sum.h"

namespace llmprof::serve {
namespace {

constexpr size_t kPointsMost = 500;  // of a series: the newest

double middle(std::span<const double> values) {
  std::vector<double> sorted(values.begin(), values.end());
  std::sort(sorted.begin(), sorted.end());
  const size_t half = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

struct Ranked {
  std::vector<double> ranks;  // from 1; equal values share the mean of theirs
  double ties = 0;            // sum of t^3 - t
};

Ranked ranked(std::span<const double> values) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return values[a] < values[b]; });
  Ranked out;
  out.ranks.resize(values.size());
  for (size_t from = 0; from < order.size();) {
    size_t to = from;
    while (to < order.size() && values[order[to]] == values[order[from]]) ++to;
    const double t = static_cast<double>(to - from);
    for (size_t i = from; i < to; ++i) out.ranks[order[i]] = static_cast<double>(from + to + 1) / 2;
    out.ties += t * t * t - t;
    from = to;
  }
  return out;
}

struct Split {
  size_t at = 0;
  double probability = 1;
};

double distance_from_middle(std::span<const double> values) {
  const double level = middle(values);
  double sum = 0;
  for (const double value : values) sum += std::abs(value - level);
  return sum;
}

std::optional<Split> best_split(std::span<const double> values) {
  const size_t n = values.size();
  if (n < 2 * kPartLeast) return std::nullopt;
  const Ranked ranks = ranked(values);
  const double splits = static_cast<double>(n - 2 * kPartLeast + 1);
  Split best;
  double rank_sum = 0, nearest = std::numeric_limits<double>::infinity();
  for (size_t at = 1; at + kPartLeast <= n; ++at) {
    rank_sum += ranks.ranks[at - 1];
    if (at < kPartLeast) continue;
    const double size = static_cast<double>(at);
    const double probability = splits * mann_whitney(at, n - at, rank_sum - size * (size + 1) / 2, ranks.ties);
    if (probability > kFalseAlarmsMost) continue;
    best.probability = std::min(best.probability, probability);
    // Ranks alone would often place it too late or early: a first value of the new level that is its smallest fits the
    // old one as well.
    const double distance = distance_from_middle(values.first(at)) + distance_from_middle(values.subspan(at));
    if (distance < nearest) {
      nearest = distance;
      best.at = at;
    }
  }
  return best.at == 0 ? std::nullopt : std::optional(best);
}

// Parts that are still to be looked at stand in a list: nothing recurses over as many runs as there may be.
std::vector<Split> all_splits(std::span<const double> values) {
  std::vector<Split> out;
  std::vector<std::pair<size_t, size_t>> parts = {{0, values.size()}};
  while (!parts.empty()) {
    const auto [from, to] = parts.back();
    parts.pop_back();
    const std::optional<Split> split = best_split(values.subspan(from, to - from));
    if (!split) continue;
    out.push_back({from + split->at, split->probability});
    parts.emplace_back(from, from + split->at);
    parts.emplace_back(from + split->at, to);
  }
  std::sort(out.begin(), out.end(), [](const Split& a, const Split& b) { return a.at < b.at; });
  return out;
}

std::vector<Change> changes_of(const std::vector<Trend::Point>& points, OptDouble Trend::Point::*figure) {
  std::vector<double> values;
  for (const Trend::Point& point : points)
    if (point.*figure) values.push_back(*(point.*figure));
  return find_changes(values);
}

bool is_figure(const OptDouble& value) { return value && std::isfinite(*value) && *value >= 0; }

}  // namespace

double mann_whitney(size_t m, size_t n, double u, double ties) {
  if (m == 0 || n == 0) return 1;
  const double a = static_cast<double>(m), b = static_cast<double>(n);
  const double least = std::min(u, a * b - u);
  if (m + n <= kRankSumExactMost) {
    const std::vector<double> counts = rank_sum_counts(m, n);
    const double all = std::accumulate(counts.begin(), counts.end(), 0.0);
    const size_t last = static_cast<size_t>(std::ceil(std::max(0.0, least)));
    const double tail = std::accumulate(counts.begin(), counts.begin() + static_cast<std::ptrdiff_t>(last) + 1, 0.0);
    return std::min(1.0, 2 * tail / all);
  }
  const double all = a + b;
  const double variance = a * b / 12 * (all + 1 - ties / (all * (all - 1)));
  if (variance <= 0) return 1;
  constexpr double kContinuity = 0.5;
  const double distance = std::max(0.0, a * b / 2 - least - kContinuity) / std::sqrt(variance);
  return std::min(1.0, std::erfc(distance / std::sqrt(2.0)));
}

std::vector<Change> find_changes(std::span<const double> values) {
  const std::vector<Split> splits = all_splits(values);
  std::vector<Change> out;
  for (size_t i = 0; i < splits.size(); ++i) {
    const size_t from = i == 0 ? 0 : splits[i - 1].at;
    const size_t to = i + 1 < splits.size() ? splits[i + 1].at : values.size();
    out.push_back({splits[i].at, middle(values.subspan(from, splits[i].at - from)),
                   middle(values.subspan(splits[i].at, to - splits[i].at)), splits[i].probability});
  }
  return out;
}

std::vector<Trend> trends_of(const std::vector<RunRow>& runs) {
  std::map<std::tuple<RunKind, std::string, std::string>, Trend> found;
  for (const RunRow& run : runs) {
    Trend::Point point{run.number, run.start_unix_ns, {}, {}};
    if (is_figure(run.ttft_ms)) point.ttft_ms = run.ttft_ms;
    if (is_figure(run.tpot_ms)) point.tpot_ms = run.tpot_ms;
    if (run.state != RunState::kWhole || (!point.ttft_ms && !point.tpot_ms)) continue;
    Trend& trend = found[{run.kind, run.name, run.gpu}];
    trend.kind = run.kind;
    trend.name = run.name;
    trend.gpu = run.gpu;
    trend.points.push_back(point);
  }
  std::vector<Trend> out;
  for (auto& [key, trend] : found) {
    if (trend.points.size() < 2) continue;
    std::sort(trend.points.begin(), trend.points.end(),
              [](const Trend::Point& a, const Trend::Point& b) { return a.number < b.number; });
    if (trend.points.size() > kPointsMost)
      trend.points.erase(trend.points.begin(), trend.points.end() - static_cast<std::ptrdiff_t>(kPointsMost));
    trend.ttft_changes = changes_of(trend.points, &Trend::Point::ttft_ms);
    trend.tpot_changes = changes_of(trend.points, &Trend::Point::tpot_ms);
    out.push_back(std::move(trend));
  }
  std::stable_sort(out.begin(), out.end(),
                   [](const Trend& a, const Trend& b) { return a.points.size() > b.points.size(); });
  return out;
}

}  // namespace llmprof::serve
