#include "capture/samplers/sample_series.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace llmprof::samplers {
namespace {

// Units of a GPU do not begin and end an interval at quite the same moment: shares of 1.05, and seldom 1.2, are true.
constexpr double kShareMax = 1.25;

bool is_share(const PmMetric& metric) { return std::string_view(metric.column).ends_with("_frac"); }

}  // namespace

SampleSeries::SampleSeries(std::vector<PmMetric> metrics, spool::Id set, Store store)
    : metrics_(std::move(metrics)), set_(set), store_(std::move(store)) {
  sums_.resize(metrics_.size());
  weights_.resize(metrics_.size());
  impossible_.assign(metrics_.size(), 0);
}

void SampleSeries::begin_session(Break before) {
  finish();
  drop_next_ = true;
  before_ = before;
}

void SampleSeries::change_metrics(std::vector<PmMetric> metrics, spool::Id set) {
  finish();
  metrics_ = std::move(metrics);
  set_ = set;
  sums_.resize(metrics_.size());
  weights_.resize(metrics_.size());
  impossible_.assign(metrics_.size(), 0);
}

void SampleSeries::add(int64_t start_ns, int64_t end_ns, const double* values) {
  if (drop_next_) {
    drop_next_ = false;
    if (before_ == Break::kPause) last_end_ns_ = 0;
    return;
  }
  const int64_t duration_ns = end_ns - start_ns;
  const bool any = std::any_of(values, values + metrics_.size(), [](double value) { return std::isfinite(value); });
  if (duration_ns <= 0 || !any) return;
  // Samples follow one another without a break; half an interval is more than rounding.
  const int64_t gap_ns = last_end_ns_ != 0 ? start_ns - last_end_ns_ : 0;
  if (std::exchange(before_, Break::kLoss) == Break::kGap) {
    gap_ns_ += std::max<int64_t>(gap_ns, 0);
  } else if (gap_ns > duration_ns / 2) {
    lost_ += static_cast<uint64_t>(std::max<int64_t>(1, (gap_ns + duration_ns / 2) / duration_ns));
    finish();
  }
  last_end_ns_ = end_ns;
  last_duration_ns_ = duration_ns;
  ++added_;
  if (pending_ == 0) {
    start_ns_ = start_ns;
    std::fill(sums_.begin(), sums_.end(), 0.0);
    std::fill(weights_.begin(), weights_.end(), 0.0);
  }
  end_ns_ = end_ns;
  for (size_t i = 0; i < metrics_.size(); ++i) {
    if (!std::isfinite(values[i])) continue;
    if (is_share(metrics_[i]) && values[i] * metrics_[i].scale > kShareMax) {
      ++impossible_[i];
      continue;
    }
    const double weight = metrics_[i].total ? 1.0 : static_cast<double>(duration_ns);
    sums_[i] += values[i] * metrics_[i].scale * weight;
    weights_[i] += weight;
  }
  if (++pending_ >= merge_) finish();
}

void SampleSeries::finish() {
  if (pending_ == 0) return;
  spool::GpuSample record;
  record.set = set_;
  record.start_ns = start_ns_;
  record.end_ns = end_ns_;
  for (size_t i = 0; i < metrics_.size() && i < std::size(record.values); ++i) {
    // A count is known only if every part of it is.
    const bool known = metrics_[i].total ? weights_[i] >= pending_ : weights_[i] > 0;
    const double value = metrics_[i].total ? sums_[i] : sums_[i] / weights_[i];
    record.values[i] = known ? static_cast<float>(value) : std::numeric_limits<float>::quiet_NaN();
  }
  pending_ = 0;
  store_(record);
}

void SampleSeries::set_merge(uint32_t factor) {
  finish();
  merge_ = std::max<uint32_t>(1, factor);
}

std::vector<std::pair<std::string_view, uint64_t>> SampleSeries::take_impossible() {
  std::vector<std::pair<std::string_view, uint64_t>> found;
  for (size_t i = 0; i < metrics_.size(); ++i)
    if (impossible_[i] > 0) found.emplace_back(metrics_[i].column, std::exchange(impossible_[i], 0));
  return found;
}

uint64_t SampleSeries::take_lost() { return std::exchange(lost_, 0); }

int64_t SampleSeries::take_gap_ns() { return std::exchange(gap_ns_, 0); }

}  // namespace llmprof::samplers
