#include "diff/pace.h"

#include <algorithm>
#include <cmath>

#include "base/statistics.h"

namespace llmprof::diff {
namespace {

// Shorter ones are a few readings of a clock.
constexpr int64_t kCodeLeastNs = 2'000, kCallLeastNs = 500;

// Of a pair of steps: logarithms of ratios, with the time of both as weight.
struct Places {
  std::vector<WeightedValue> code, calls;
  size_t count() const { return std::min(code.size(), calls.size()); }
};

void add_place(int64_t of_a, int64_t of_b, int64_t least, std::vector<WeightedValue>& out) {
  if (of_a < least || of_b < least) return;
  const double from = static_cast<double>(of_a), to = static_cast<double>(of_b);
  out.push_back({std::log(to / from), std::sqrt(from * to)});
}

Places places_of(const Replayable& a, const Replayable& b, const AlignedStep& step) {
  Places out;
  for (const auto& [in_a, in_b] : step.calls) {
    if (in_a == kNoRow || in_b == kNoRow) continue;
    add_place(a.durations.before_ns[in_a], b.durations.before_ns[in_b], kCodeLeastNs, out.code);
    if (!a.recording->waits(in_a) && !b.recording->waits(in_b))
      add_place(a.durations.call_ns[in_a], b.durations.call_ns[in_b], kCallLeastNs, out.calls);
  }
  return out;
}

// What a step takes is a sum, in which long places count for more; but the longest ones, that could be what was
// changed, for no more than one of kFewestPlaces.
double pace_of(std::vector<WeightedValue> places) {
  double all = 0;
  for (const WeightedValue& place : places) all += place.weight;
  for (WeightedValue& place : places) place.weight = std::min(place.weight, all / HostPaceRatio::kFewestPlaces);
  return std::exp(weighted_midmean_of(std::move(places)));
}

HostPaceRatio pace_of(Places places) {
  HostPaceRatio out;
  out.places = places.count();
  if (!out.known()) return out;
  out.code = pace_of(std::move(places.code));
  out.calls = pace_of(std::move(places.calls));
  return out;
}

// Of logarithms.
constexpr double kMoved = 0.05, kMovedFar = 0.4, kCallsLeast = 0.1;

}  // namespace

bool HostPaceRatio::host_moved() const {
  const double of_code = std::log(code), of_calls = of_code > 0 ? std::log(calls) : -std::log(calls);
  if (std::abs(of_code) <= kMoved) return false;
  return std::abs(of_code) < kMovedFar || of_calls >= kCallsLeast * std::abs(of_code);
}

std::vector<HostPaceRatio> paces_between(const Replayable& a, const Replayable& b,
                                         const std::vector<AlignedStep>& steps) {
  std::vector<HostPaceRatio> out, known;
  for (const AlignedStep& step : steps) {
    out.push_back(pace_of(places_of(a, b, step)));
    if (out.back().known()) known.push_back(out.back());
  }
  if (known.size() == out.size()) return out;
  const HostPaceRatio of_rest = 2 * known.size() >= out.size() ? median_of_paces(known) : HostPaceRatio{};
  for (HostPaceRatio& pace : out)
    if (!pace.known() || !of_rest.known()) pace = of_rest;
  return out;
}

HostPaceRatio median_of_paces(const std::vector<HostPaceRatio>& paces) {
  std::vector<double> code, calls;
  HostPaceRatio out = paces.front();
  for (const HostPaceRatio& pace : paces) {
    code.push_back(pace.code);
    calls.push_back(pace.calls);
    out.places = std::min(out.places, pace.places);
  }
  out.code = median_of(std::move(code));
  out.calls = median_of(std::move(calls));
  return out;
}

}  // namespace llmprof::diff
