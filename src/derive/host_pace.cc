#include "derive/host_pace.h"

#include <algorithm>

#include "base/pace_work.h"
#include "base/statistics.h"
#include "derive/recorded_spans.h"

namespace llmprof {
namespace {

constexpr size_t kProbesLeast = 10;
constexpr double kBestQuantile = 0.05;
constexpr double kOfOneThread = 0.8;     // of all probes of a process: others wait now and then
constexpr int64_t kNearNs = 12'000'000;  // twice as far as probes lie apart
// Of the time between two probes, in which the thread was ready to run and had no CPU: more is not full pace. Moments
// of the system's own threads are less.
constexpr double kWaitedMost = 0.02;

// By process, the thread that has nearly all of its probes, if it has enough.
std::map<int64_t, ThreadId> probed_threads(const Trace& trace) {
  std::map<int64_t, std::map<ThreadId, size_t>> counts;
  for (Row row = 0; row < trace.host_paces.size(); ++row) {
    const ThreadId thread = trace.host_paces.thread[row];
    if (thread < trace.threads.size() && trace.host_paces.dur_ns[row] > 0)
      ++counts[trace.threads.process_id[thread]][thread];
  }
  std::map<int64_t, ThreadId> out;
  for (const auto& [process, threads] : counts) {
    size_t all = 0;
    std::pair<ThreadId, size_t> most{kNoRow, 0};
    for (const auto& [thread, count] : threads) {
      all += count;
      if (count > most.second) most = {thread, count};
    }
    const bool alone = static_cast<double>(most.second) >= kOfOneThread * static_cast<double>(all);
    if (alone && most.second >= kProbesLeast) out[process] = most.first;
  }
  return out;
}

}  // namespace

HostPace::HostPace(const Trace& trace, double known_best_ns) {
  const HostPaces& paces = trace.host_paces;
  double best_ns = known_best_ns;
  std::map<int64_t, size_t> place;
  for (const auto& [process, thread] : probed_threads(trace)) {
    std::vector<double> took_ns;
    std::vector<Probe>& probes = probes_.emplace_back();
    struct {
      int64_t ns = 0;
      bool known = false;
    } waited;
    for (Row row = 0; row < paces.size(); ++row) {
      if (paces.thread[row] != thread || paces.dur_ns[row] <= 0) continue;
      took_ns.push_back(static_cast<double>(paces.dur_ns[row]));
      Probe probe{paces.start_ns[row], paces.start_ns[row] + paces.dur_ns[row], 0, 0};
      if (!probes.empty() && paces.waited_ns[row] > 0) {
        const double since_ns = static_cast<double>(std::max<int64_t>(1, probe.end_ns - probes.back().end_ns));
        probe.waited = std::min(1.0, static_cast<double>(paces.waited_ns[row]) / since_ns);
      }
      waited.ns += !probes.empty() && paces.waited_ns[row] >= 0 ? paces.waited_ns[row] : 0;
      waited.known |= paces.waited_ns[row] >= 0;
      probes.push_back(probe);
    }
    std::sort(took_ns.begin(), took_ns.end());
    const double quick_ns = quantile_of_sorted(took_ns, kBestQuantile);
    best_ns = best_ns > 0 ? std::min(best_ns, quick_ns) : quick_ns;
    place[process] = probed_.size();
    probed_.push_back({process, static_cast<int64_t>(probes.size()), 0, 0, {}});
    const int64_t all_ns = probes.back().end_ns - probes.front().end_ns;
    if (waited.known && all_ns > 0)
      probed_.back().waited_frac = std::min(1.0, static_cast<double>(waited.ns) / static_cast<double>(all_ns));
  }
  for (size_t i = 0; i < probed_.size(); ++i) {
    size_t slow = 0;
    for (Probe& probe : probes_[i]) {
      probe.pace = std::min(1.0, best_ns / static_cast<double>(probe.end_ns - probe.start_ns));
      slow += probe.pace < kFullPace || probe.waited > kWaitedMost ? 1 : 0;
    }
    probed_[i].best_ns = best_ns;
    probed_[i].slow_frac = static_cast<double>(slow) / static_cast<double>(probes_[i].size());
  }
  if (probed_.empty()) return;
  for (const auto& [device, processes] : processes_of_devices(trace)) {
    const auto found = place.find(*processes.begin());
    if (processes.size() == 1 && found != place.end()) of_device_[device] = found->second;
  }
}

const std::vector<HostPace::Probe>* HostPace::probes_of(int32_t device) const {
  const auto found = of_device_.find(device);
  if (found != of_device_.end()) return &probes_[found->second];
  // Where no launch is recorded, the only process that there is.
  return of_device_.empty() && probes_.size() == 1 ? &probes_[0] : nullptr;
}

std::optional<HostPace::Near> HostPace::near(int32_t device, int64_t start_ns, int64_t end_ns) const {
  const std::vector<Probe>* const found = probes_of(device);
  if (found == nullptr) return {};
  const std::vector<Probe>& probes = *found;
  auto last = std::lower_bound(probes.begin(), probes.end(), end_ns,
                               [](const Probe& probe, int64_t time) { return probe.start_ns < time; });
  if (last == probes.end() || last->start_ns - end_ns > kNearNs) {
    if (last == probes.begin()) return {};
    --last;  // nothing behind it: the last one before its end, if that is near
    if (end_ns - last->end_ns > kNearNs) return {};
  }
  auto first = last;
  while (first != probes.begin() && first->end_ns > start_ns) --first;
  if (first->end_ns > start_ns + kNearNs || start_ns - first->end_ns > kNearNs) return {};
  Near out{0, 1, 0};
  for (auto probe = first; probe <= last; ++probe) {
    // What the thread waited before a probe that had ended when the time began was before it, too.
    const double waited = probe->end_ns > start_ns ? probe->waited : 0;
    out.mean += probe->pace * (1 - waited);
    out.least = std::min(out.least, probe->pace);
    out.waited = std::max(out.waited, waited);
  }
  out.mean /= static_cast<double>(last - first + 1);
  return out;
}

std::optional<double> HostPace::during(int32_t device, int64_t start_ns, int64_t end_ns) const {
  const std::optional<Near> found = near(device, start_ns, end_ns);
  return found ? std::optional(found->mean) : std::nullopt;
}

bool HostPace::full(int32_t device, int64_t start_ns, int64_t end_ns) const {
  const std::optional<Near> found = near(device, start_ns, end_ns);
  return found && found->least >= kFullPace && found->waited <= kWaitedMost;
}

}  // namespace llmprof
