#include "diff/pace.h"

#include <cmath>

#include "base/statistics.h"

namespace llmprof::diff {
namespace {

// Shorter ones are a few readings of a clock.
constexpr int64_t kCodeLeastNs = 2'000, kCallLeastNs = 500;

}  // namespace

HostPaceRatio pace_between(const Replayable& a, const Replayable& b, const std::vector<AlignedStep>& steps) {
  std::vector<double> code, calls;
  const auto add = [](int64_t of_a, int64_t of_b, int64_t least, std::vector<double>& out) {
    if (of_a >= least && of_b >= least)
      out.push_back(std::log(static_cast<double>(of_b)) - std::log(static_cast<double>(of_a)));
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
  out.code = std::exp(median_of(std::move(code)));
  out.calls = std::exp(median_of(std::move(calls)));
  return out;
}

}  // namespace llmprof::diff
