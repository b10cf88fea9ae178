#include "analyze/host_pace.h"

#include <algorithm>
#include <map>

#include "base/pace_work.h"
#include "base/statistics.h"

namespace llmprof {
namespace {

constexpr size_t kProbesLeast = 10;
constexpr double kBestQuantile = 0.05;
constexpr double kOfOneThread = 0.8;     // of all probes: others wait now and then
constexpr int64_t kNearNs = 12'000'000;  // twice as far as probes lie apart

// The thread that has nearly all probes.
ThreadId probed_thread(const HostPaces& paces) {
  std::map<ThreadId, size_t> counts;
  for (const ThreadId thread : paces.thread) ++counts[thread];
  const auto most =
      std::max_element(counts.begin(), counts.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  const bool alone =
      most != counts.end() && static_cast<double>(most->second) >= kOfOneThread * static_cast<double>(paces.size());
  return alone ? most->first : kNoRow;
}

}  // namespace

HostPace::HostPace(const Trace& trace, const RecorderCosts& costs) {
  const HostPaces& paces = trace.host_paces;
  const ThreadId thread = probed_thread(paces);
  if (thread == kNoRow) return;
  std::vector<double> took_ns;
  for (Row row = 0; row < paces.size(); ++row)
    if (paces.thread[row] == thread && paces.dur_ns[row] > 0) took_ns.push_back(static_cast<double>(paces.dur_ns[row]));
  if (took_ns.size() < kProbesLeast) return;
  std::sort(took_ns.begin(), took_ns.end());
  double best_ns = quantile_of_sorted(took_ns, kBestQuantile);
  const auto known = costs.find(kHostPaceCost);
  if (known != costs.end()) best_ns = std::min(best_ns, known->second.plain_ns);
  if (best_ns <= 0) return;

  HostPaceRecord record;
  record.probes = static_cast<int64_t>(took_ns.size());
  record.best_ns = best_ns;
  size_t slow = 0;
  for (Row row = 0; row < paces.size(); ++row) {
    if (paces.thread[row] != thread || paces.dur_ns[row] <= 0) continue;
    const double pace = std::min(1.0, best_ns / static_cast<double>(paces.dur_ns[row]));
    probes_.push_back({paces.start_ns[row], paces.start_ns[row] + paces.dur_ns[row], pace});
    slow += pace < kFullPace ? 1 : 0;
  }
  record.slow_frac = static_cast<double>(slow) / static_cast<double>(probes_.size());
  record_ = record;
}

std::optional<HostPace::Near> HostPace::near(int64_t start_ns, int64_t end_ns) const {
  auto last = std::lower_bound(probes_.begin(), probes_.end(), end_ns,
                               [](const Probe& probe, int64_t time) { return probe.start_ns < time; });
  if (last == probes_.end() || last->start_ns - end_ns > kNearNs) {
    if (last == probes_.begin()) return {};
    --last;  // nothing behind it: the last one before its end, if that is near
    if (end_ns - last->end_ns > kNearNs) return {};
  }
  auto first = last;
  while (first != probes_.begin() && first->end_ns > start_ns) --first;
  if (first->end_ns > start_ns + kNearNs || start_ns - first->end_ns > kNearNs) return {};
  Near out{0, 1};
  for (auto probe = first; probe <= last; ++probe) {
    out.mean += probe->pace;
    out.least = std::min(out.least, probe->pace);
  }
  out.mean /= static_cast<double>(last - first + 1);
  return out;
}

std::optional<double> HostPace::during(int64_t start_ns, int64_t end_ns) const {
  const std::optional<Near> found = near(start_ns, end_ns);
  return found ? std::optional(found->mean) : std::nullopt;
}

bool HostPace::full(int64_t start_ns, int64_t end_ns) const {
  const std::optional<Near> found = near(start_ns, end_ns);
  return found && found->least >= kFullPace;
}

}  // namespace llmprof
