#include "base/steady_series.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "base/statistics.h"

namespace llmprof {
namespace {

constexpr double kSigmaOfMad = 1.4826;  // of a normal distribution
constexpr size_t kSpreadMin = 8;        // of fewer steps the spread says little
constexpr double kClearSigmas = 6, kClearMin = 0.1, kClearFew = 0.5, kClearOne = 1.0;
constexpr double kEvidenceSigmas = 3, kEvidenceMin = 0.02, kEvidenceFew = 0.05;
constexpr double kDriftMost = 0.5;                       // clocks of a GPU lie within this; more is no drift
constexpr double kEvidencePart = 0.1;                    // of the excess that evidence explains at least
constexpr size_t kOftenMin = 6;                          // steps of which the later half says what comes again
constexpr double kRecursMin = 0.1, kRecursExcess = 0.6;  // of later steps that are as slow by so much of the excess
constexpr double kTrendExplains = 0.7;                   // of the spread that a trend leaves, at most
constexpr size_t kTrendPoints = 128, kAround = 16, kNear = 8, kBeginning = 32, kRecursWithin = 4;
constexpr double kFallFew = 2, kFallMany = 1.5, kFallPairs = 0.9;

double spread_of(const std::vector<double>& values, double median) {
  std::vector<double> off;
  off.reserve(values.size());
  for (const double value : values) off.push_back(std::fabs(value - median));
  return kSigmaOfMad * median_of(std::move(off));
}

std::vector<double> thinned_to(const std::vector<double>& values, size_t most) {
  if (values.size() <= most) return values;
  std::vector<double> out;
  for (size_t i = 0; i < most; ++i) out.push_back(values[i * values.size() / most]);
  return out;
}

// Median slope of all pairs (Theil and Sen); 0 where the abscissa does not vary.
double median_slope(const std::vector<double>& x, const std::vector<double>& y) {
  std::vector<double> slopes;
  for (size_t i = 0; i < x.size(); ++i)
    for (size_t j = i + 1; j < x.size(); ++j)
      if (x[i] != x[j]) slopes.push_back((y[j] - y[i]) / (x[j] - x[i]));
  return slopes.empty() ? 0 : median_of(std::move(slopes));
}

class Series {
 public:
  Series(const std::vector<SeriesStep>& steps, StepSize size) : steps_(steps), size_(size), n_(steps.size()) {
    once_.resize(n_);
    hint_.resize(n_);
    for (size_t i = 0; i < n_; ++i) {
      once_[i] = steps[i].once_ns > kEvidenceMin * steps[i].ns ? std::min(steps[i].once_ns, steps[i].ns) : 0;
      hint_[i] = steps[i].hint ? 1 : 0;
    }
    forget_what_recurs();
    level_out_sizes();
    level_out_paces();
  }

  SteadySeries find() {
    SteadySeries out;
    out.excess_ns.assign(n_, 0);
    out.warm_up.assign(n_, 0);
    if (n_ == 0) return out;
    find_evidence();
    size_t beginning = 0;
    for (const size_t end : {std::min(n_, kBeginning), n_}) beginning = std::max(beginning, beginning_of(end));
    std::vector<double> rest;
    for (size_t i = beginning; i < n_; ++i)
      if (by_evidence_[i] == 0) rest.push_back(own_[i]);
    const double level = rest.empty() ? median_of(own_) : median_of(rest);
    for (size_t i = 0; i < n_; ++i) {
      const bool slow = i < beginning ? slow_[i] != 0 : by_evidence_[i] != 0 && once_[i] > 0;
      if (!slow) continue;
      out.warm_up[i] = 1;
      out.excess_ns[i] = std::max(0.0, all_[i] - (i < beginning ? level : around(i)));
    }
    mark_fall(out);
    find_level(out);
    return out;
  }

 private:
  bool few_are_enough() const { return size_ != StepSize::kUnknown; }

  void forget_what_recurs() {
    if (n_ < kOftenMin) return;
    size_t once = 0, hints = 0;
    for (size_t i = n_ / 2; i < n_; ++i) {
      once += once_[i] > 0 ? 1 : 0;
      hints += hint_[i];
    }
    const size_t later = n_ - n_ / 2;
    if (once * 2 > later) std::fill(once_.begin(), once_.end(), 0.0);
    if (hints * 4 > later) std::fill(hint_.begin(), hint_.end(), uint8_t{0});
  }

  // all_: times as they would be at the usual size; own_: those without what comes once. A step larger than any later
  // one of a trend cannot be judged by it.
  void level_out_sizes() {
    all_.resize(n_);
    beyond_.assign(n_, 0);
    std::vector<double> later, later_ns;
    bool known = n_ > 0;
    for (const SeriesStep& step : steps_) known &= step.size >= 0;
    for (size_t i = n_ / 2; i < n_; ++i) {
      later.push_back(steps_[i].size);
      later_ns.push_back(steps_[i].ns - once_[i]);
    }
    double slope = 0, usual = -1, most = -1;
    if (known) {
      usual = median_of(later);
      most = *std::max_element(later.begin(), later.end());
      slope = trend(later, later_ns);
    }
    for (size_t i = 0; i < n_; ++i) {
      all_[i] = steps_[i].ns;
      if (!known) continue;
      if (slope > 0)
        all_[i] = std::max(0.0, all_[i] - slope * (steps_[i].size - usual));
      else if (size_ == StepSize::kBinned)
        all_[i] *= std::min(1.0, usual / std::max(1.0, steps_[i].size));
      // With a longer context than any later step there is a reason to be slow.
      if (size_ == StepSize::kAlike && steps_[i].size > most) beyond_[i] = 1;
    }
    own_.resize(n_);
    for (size_t i = 0; i < n_; ++i) own_[i] = std::max(0.0, all_[i] - once_[i]);
  }

  // Times as they would be if nothing but a CPU at full pace had taken them. What waits for the GPU takes longer than
  // that: only what is slow by both is slow.
  void level_out_paces() {
    all_at_pace_ = all_;
    own_at_pace_ = own_;
    for (size_t i = 0; i < n_; ++i) {
      if (steps_[i].pace <= 0) continue;
      all_at_pace_[i] *= steps_[i].pace;
      own_at_pace_[i] *= steps_[i].pace;
    }
  }

  // Time per size, where it explains much of the spread; else 0.
  static double trend(const std::vector<double>& sizes, const std::vector<double>& ns) {
    const std::vector<double> x = thinned_to(sizes, kTrendPoints), y = thinned_to(ns, kTrendPoints);
    const double slope = median_slope(x, y);
    if (x.size() < kSpreadMin || slope <= 0) return 0;
    std::vector<double> left;
    for (size_t i = 0; i < x.size(); ++i) left.push_back(y[i] - slope * x[i]);
    return spread_of(left, median_of(left)) < kTrendExplains * spread_of(y, median_of(y)) ? slope : 0;
  }

  // The steps that one is compared with: those behind it, or the last ones; itself among them only without what comes
  // once.
  std::vector<double> near(size_t i) const {
    size_t from = i + 1, to = std::min(n_, i + 1 + kAround);
    const bool few = to - from < (once_[i] > 0 ? 3 : 1);
    if (few) from = n_ - std::min(n_, kAround), to = n_;
    return {own_.begin() + static_cast<std::ptrdiff_t>(from), own_.begin() + static_cast<std::ptrdiff_t>(to)};
  }
  double around(size_t i) const { return median_of(near(i)); }

  void find_evidence() {
    by_evidence_.assign(n_, 0);
    for (size_t i = 0; i < n_; ++i) {
      if (once_[i] <= 0 && hint_[i] == 0) continue;
      const std::vector<double> others = near(i);
      // What is known to come once is none of the step's own level, however slow the ones before it were.
      const double level = once_[i] > 0 ? std::min(median_of(others), own_[i]) : median_of(others);
      const double least = others.size() >= kSpreadMin
                               ? std::max(kEvidenceSigmas * spread_of(others, level), kEvidenceMin * level)
                               : (once_[i] > 0 ? kEvidenceFew : kClearFew) * level;
      const double excess = all_[i] - level;
      if (excess <= least) continue;
      const bool compares = few_are_enough() || n_ > kSpreadMin;
      if (once_[i] >= kEvidencePart * excess || (hint_[i] != 0 && compares && i + 1 < n_ && beyond_[i] == 0))
        by_evidence_[i] = 1;
    }
  }

  // From what time on a step of [0, end) is slow for sure, by the steps from `from` on; never where nobody can tell.
  double clear_limit(const std::vector<double>& own, size_t from, size_t end) const {
    std::vector<double> rest;
    for (size_t i = from; i < end; ++i)
      if (by_evidence_[i] == 0) rest.push_back(own[i]);
    if (rest.empty() || (!few_are_enough() && rest.size() < kSpreadMin)) return HUGE_VAL;
    const double level = median_of(rest);
    const double least = rest.size() >= kSpreadMin ? kClearMin : rest.size() > 1 ? kClearFew : kClearOne;
    const double spread = rest.size() > 1 ? spread_of(rest, level) : 0;
    return level + std::max(least * level, rest.size() >= kSpreadMin ? kClearSigmas * spread : 0);
  }

  // Of the first `end` steps. Their later half (or, of many, quarter) is taken to be steady at first.
  size_t beginning_of(size_t end) {
    size_t best = 0;
    std::vector<uint8_t> best_slow;
    for (const size_t part : {size_t{2}, size_t{4}}) {
      if (part == 4 && end < 4 * kSpreadMin) break;
      std::vector<uint8_t> slow(n_, 0);
      size_t found = end - std::max<size_t>(1, end / part), before = n_ + 1;
      if (part == 2) found = end / 2;
      for (int round = 0; round < 3 && found != before; ++round) {
        before = found;
        const double limit = clear_limit(own_, found, end), limit_at_pace = clear_limit(own_at_pace_, found, end);
        for (size_t i = 0; i < end; ++i) {
          const bool clear = all_[i] > limit && all_at_pace_[i] > limit_at_pace && beyond_[i] == 0;
          slow[i] = by_evidence_[i] != 0 || clear ? 1 : 0;
        }
        found = slow_beginning({slow.begin(), slow.begin() + static_cast<std::ptrdiff_t>(end)});
      }
      if (!is_warm_up(slow, found, std::min(n_, kRecursWithin * end), part == 4)) {
        for (size_t i = 0; i < end; ++i) slow[i] = by_evidence_[i];
        found = slow_beginning({slow.begin(), slow.begin() + static_cast<std::ptrdiff_t>(end)});
      }
      if (found > best) best = found, best_slow = slow;
    }
    if (best > beginning_) beginning_ = best, slow_ = std::move(best_slow);
    return best;
  }

  // Whether what is slow in the first `end` steps is their being first: it does not come again in those up to `within`,
  // and ends at once where it might be drift.
  bool is_warm_up(const std::vector<uint8_t>& slow, size_t end, size_t within, bool large_only) const {
    std::vector<double> excesses, rest, last, next;
    for (size_t i = end; i < within; ++i)
      if (by_evidence_[i] == 0) rest.push_back(own_[i]);
    for (size_t i = 0; i < end; ++i)
      if (slow[i] != 0 && by_evidence_[i] == 0) last.push_back(all_[i]);
    if (last.empty()) return true;
    if (rest.empty() || (rest.size() < kSpreadMin && rest.size() < last.size())) return false;
    const double level = median_of(rest);
    for (const double ns : last) excesses.push_back(ns - level);
    const double excess = median_of(excesses);
    const auto recurs = [&](double ns) { return ns - level > kRecursExcess * excess; };
    const std::ptrdiff_t again = std::count_if(rest.begin(), rest.end(), recurs);
    if (static_cast<double>(again) > kRecursMin * static_cast<double>(rest.size())) return false;
    if (excess >= kDriftMost * level) return true;
    if (large_only) return false;
    if (last.size() > kNear) last.erase(last.begin(), last.end() - static_cast<std::ptrdiff_t>(kNear));
    next.assign(rest.begin(), rest.begin() + static_cast<std::ptrdiff_t>(std::min(rest.size(), kNear)));
    return median_of(last) - median_of(next) >= excess / 2;
  }

  // All of it is beginning where the steps behind what was found fall to the end.
  void mark_fall(SteadySeries& out) const {
    std::vector<double> rest, rest_at_pace;
    for (size_t i = 0; i < n_; ++i) {
      if (out.warm_up[i] != 0) continue;
      rest.push_back(all_[i]);
      rest_at_pace.push_back(all_at_pace_[i]);
    }
    if (rest.size() < 2 || n_ < 3 || (!few_are_enough() && rest.size() < kSpreadMin)) return;
    if (!falls(rest) || !falls(rest_at_pace)) return;
    out.falls = true;
    const double least = *std::min_element(rest.begin(), rest.end());
    for (size_t i = 0; i < n_; ++i) {
      if (out.warm_up[i] == 0) out.excess_ns[i] = std::max(0.0, all_[i] - least);
      out.warm_up[i] = 1;
    }
  }

  bool falls(const std::vector<double>& rest) const {
    const auto third = static_cast<std::ptrdiff_t>(std::max<size_t>(1, rest.size() / 3));
    const double first = median_of({rest.begin(), rest.begin() + third}),
                 last = median_of({rest.end() - third, rest.end()});
    if (first <= (n_ < kSpreadMin ? kFallFew : kFallMany) * last) return false;
    const std::vector<double> points = thinned_to(rest, kTrendPoints);
    size_t pairs = 0, falling = 0;
    for (size_t i = 0; i < points.size(); ++i)
      for (size_t j = i + 1; j < points.size(); ++j) ++pairs, falling += points[i] > points[j] ? 1 : 0;
    return static_cast<double>(falling) >= kFallPairs * static_cast<double>(pairs);
  }

  void find_level(SteadySeries& out) const {
    std::vector<double> steady;
    for (size_t i = 0; i < n_; ++i)
      if (out.warm_up[i] == 0) steady.push_back(steps_[i].ns);
    out.level_ns = steady.empty() ? *std::min_element(own_.begin(), own_.end()) : median_of(std::move(steady));
  }

  const std::vector<SeriesStep>& steps_;
  StepSize size_;
  size_t n_, beginning_ = 0;
  std::vector<double> once_, all_, own_, all_at_pace_, own_at_pace_;
  std::vector<uint8_t> hint_, beyond_, by_evidence_, slow_;
};

}  // namespace

size_t slow_beginning(const std::vector<uint8_t>& slow) {
  size_t end = 0, count = 0;
  for (size_t i = 0; i < slow.size(); ++i) {
    count += slow[i] != 0 ? 1 : 0;
    if (count * 2 < i + 1) break;
    if (slow[i] != 0) end = i + 1;
  }
  return end;
}

SteadySeries find_steady_series(const std::vector<SeriesStep>& steps, StepSize size) {
  return Series(steps, size).find();
}

}  // namespace llmprof
