#include "bench/stop_rule.h"

#include <algorithm>
#include <cmath>

namespace llmprof::bench {
namespace {

constexpr int64_t kStableMin = 64;  // samples before the change of the noise says anything

}  // namespace

void StopRule::add(double us) {
  ++n_;
  const double distance = us - mean_;
  mean_ += distance / static_cast<double>(n_);
  squares_ += distance * (us - mean_);
  rel_stdevs_.push_back(rel_stdev());
}

double StopRule::rel_stdev() const {
  if (n_ < 2 || mean_ <= 0) return 0;
  return std::sqrt(squares_ / static_cast<double>(n_ - 1)) / mean_;
}

bool StopRule::noise_is_stable() const {
  if (n_ < kStableMin) return false;
  const int64_t window = std::min<int64_t>(protocol_.noise_window, n_ / 2);
  const double now = rel_stdevs_.back();
  return std::all_of(rel_stdevs_.end() - window, rel_stdevs_.end(),
                     [&](double before) { return std::fabs(before - now) <= protocol_.noise_change_max * now; });
}

double StopRule::least_s(bool limited) const {
  if (!limited) return 0;
  return quiet() ? std::min(protocol_.period_s, protocol_.held_down_s) : protocol_.held_down_s;
}

bool StopRule::done(double spent_s, bool limited) const {
  if (spent_s >= protocol_.wall_max_s) return true;
  if (spent_s < min_s_) return false;
  // Whole periods have been taken, and more would be a part of one.
  return (limited && n_ >= protocol_.samples_min) || converged();
}

}  // namespace llmprof::bench
