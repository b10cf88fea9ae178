#include "analyze/clock_offset.h"

#include <algorithm>
#include <cmath>

#include "derive/recorded_spans.h"
#include "derive/steps.h"

namespace llmprof {
namespace {

constexpr int64_t kSearchNs = 500'000;
constexpr size_t kComparedMost = 4000;  // evenly taken from all that qualify
constexpr size_t kComparedLeast = 200;
constexpr double kCorrelationLeast = 0.5;
// Samples in which the GPU was busy throughout, or not at all, say nothing about time.
constexpr double kPartlyLeast = 0.05, kPartlyMost = 0.95;

struct Sample {
  int64_t start_ns, end_ns;
  double active_frac;
};

// Pearson's correlation of the active shares and the busy shares of the same intervals moved by `shift_ns`.
double agreement(const std::vector<Sample>& samples, const BusyIndex& busy, int32_t device, int64_t shift_ns) {
  double n = 0, x = 0, y = 0, xx = 0, yy = 0, xy = 0;
  for (const Sample& sample : samples) {
    const double a = sample.active_frac;
    const double b = static_cast<double>(busy.busy_in(device, sample.start_ns + shift_ns, sample.end_ns + shift_ns)) /
                     static_cast<double>(sample.end_ns - sample.start_ns);
    n += 1;
    x += a;
    y += b;
    xx += a * a;
    yy += b * b;
    xy += a * b;
  }
  const double spread = (n * xx - x * x) * (n * yy - y * y);
  return spread > 0 ? (n * xy - x * y) / std::sqrt(spread) : 0;
}

}  // namespace

std::optional<ClockOffset> counter_clock_offset(const Trace& trace, int32_t device, const CounterSamples& counters) {
  if (counters.empty() || counters.gpm() || trace.busy_intervals.empty()) return std::nullopt;
  const GpuSamples& table = trace.gpu_samples;
  const RecordedSpans recorded(trace);
  const std::vector<TimeSpan>& dark = recorded.unrecorded(device);
  const BusyIndex busy(trace);
  int64_t first_ns = std::numeric_limits<int64_t>::max(), last_ns = std::numeric_limits<int64_t>::min();
  for (const Window& window : trace.windows) {
    if (window.device != device) continue;
    first_ns = std::min(first_ns, window.start_ns);
    last_ns = std::max(last_ns, window.end_ns);
  }
  std::vector<Sample> samples;
  for (const Row row : counters.rows()) {
    const Sample sample{table.start_ns[row], table.start_ns[row] + table.dur_ns[row],
                        static_cast<double>(table.gr_active_frac[row])};
    if (!(sample.active_frac >= kPartlyLeast && sample.active_frac <= kPartlyMost) || table.dur_ns[row] <= 0) continue;
    if (sample.start_ns - kSearchNs < first_ns || sample.end_ns + kSearchNs > last_ns) continue;
    if (RecordedSpans::touches(dark, sample.start_ns - kSearchNs, sample.end_ns + kSearchNs)) continue;
    samples.push_back(sample);
  }
  if (samples.size() < kComparedLeast) return std::nullopt;
  if (samples.size() > kComparedMost) {
    std::vector<Sample> thinned;
    for (size_t i = 0; i < kComparedMost; ++i) thinned.push_back(samples[i * samples.size() / kComparedMost]);
    samples = std::move(thinned);
  }
  int64_t best_ns = 0;
  double best = -1;
  const auto search = [&](int64_t reach_ns, int64_t step_ns) {
    const int64_t centre_ns = best_ns;
    for (int64_t shift_ns = centre_ns - reach_ns; shift_ns <= centre_ns + reach_ns; shift_ns += step_ns) {
      const double here = agreement(samples, busy, device, shift_ns);
      if (here > best) best = here, best_ns = shift_ns;
    }
  };
  search(kSearchNs, 20'000);
  search(20'000, 1'000);
  search(1'000, 100);
  if (best < kCorrelationLeast) return std::nullopt;
  return ClockOffset{static_cast<double>(best_ns) / 1e3, best, static_cast<int64_t>(samples.size())};
}

}  // namespace llmprof
