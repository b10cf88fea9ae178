#include "diff/pace.h"

#include <algorithm>
#include <cmath>

#include "base/statistics.h"

namespace llmprof::diff {
namespace {

// Shorter ones are a few readings of a clock.
constexpr int64_t kCodeLeastNs = 2'000, kCallLeastNs = 500;

// Of both sides' durations at places of `steps` steps. What a step takes is a sum, in which long places count for more;
// but the longest ones, that could be what was changed, for no more than one of kFewestPlaces.
double pace_of(std::vector<WeightedValue> places, size_t steps) {
  double all = 0;
  for (const WeightedValue& place : places) all += place.weight;
  const double most = all / static_cast<double>(HostPaceRatio::kFewestPlaces * steps);
  for (WeightedValue& place : places) place.weight = std::min(place.weight, most);
  return std::exp(weighted_median_of(std::move(places)));
}

// Of logarithms.
constexpr double kMoved = 0.05, kMovedFar = 0.4, kCallsLeast = 0.1;

}  // namespace

bool HostPaceRatio::host_moved() const {
  const double of_code = std::log(code), of_calls = of_code > 0 ? std::log(calls) : -std::log(calls);
  if (std::abs(of_code) <= kMoved) return false;
  return std::abs(of_code) < kMovedFar || of_calls >= kCallsLeast * std::abs(of_code);
}

HostPaceRatio pace_between(const Replayable& a, const Replayable& b, const std::vector<AlignedStep>& steps) {
  std::vector<WeightedValue> code, calls;
  const auto add = [](int64_t of_a, int64_t of_b, int64_t least, std::vector<WeightedValue>& out) {
    if (of_a < least || of_b < least) return;
    const double from = static_cast<double>(of_a), to = static_cast<double>(of_b);
    out.push_back({std::log(to / from), std::sqrt(from * to)});
  };
  for (const AlignedStep& step : steps)
    for (const auto& [in_a, in_b] : step.calls) {
      if (in_a == kNoRow || in_b == kNoRow) continue;
      add(a.durations.before_ns[in_a], b.durations.before_ns[in_b], kCodeLeastNs, code);
      if (!a.recording->waits(in_a) && !b.recording->waits(in_b))
        add(a.durations.call_ns[in_a], b.durations.call_ns[in_b], kCallLeastNs, calls);
    }
  HostPaceRatio out;
  out.places = std::min(code.size(), calls.size());
  if (!out.known()) return out;
  out.code = pace_of(std::move(code), steps.size());
  out.calls = pace_of(std::move(calls), steps.size());
  return out;
}

}  // namespace llmprof::diff
