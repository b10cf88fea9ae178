#include "derive/no_input.h"

#include <algorithm>

namespace llmprof {
namespace {

constexpr int64_t kUsedMostPart = 5;  // of the stretch, one in so many
constexpr int64_t kCoarseClockNs = 1'000'000;

}  // namespace

NoInput::NoInput(const Trace& trace) {
  const CpuReadings& readings = trace.cpu_readings;
  const bool coarse = std::all_of(readings.cpu_ns.begin(), readings.cpu_ns.end(),
                                  [](int64_t cpu_ns) { return cpu_ns % kCoarseClockNs == 0; });
  if (coarse) return;
  const auto end_of = [&](Row row) { return readings.start_ns[row] + readings.dur_ns[row]; };
  // A thread that is ready to run and has no CPU lacks none of its input.
  const HostPaces& paces = trace.host_paces;
  std::map<ThreadId, std::vector<Row>> probes;  // in order of time
  for (Row row = 0; row < paces.size(); ++row) probes[paces.thread[row]].push_back(row);
  const auto wanted_cpu = [&](ThreadId thread, int64_t end_ns, int64_t dur_ns) {
    const auto of = probes.find(thread);
    if (of == probes.end()) return false;
    const auto behind = std::partition_point(of->second.begin(), of->second.end(),
                                             [&](Row row) { return paces.start_ns[row] < end_ns; });
    return behind != of->second.end() && paces.waited_ns[*behind] * 2 >= dur_ns;
  };
  std::map<int64_t, std::vector<Row>> processes;  // readings in order of their end
  for (Row row = 0; row < readings.size(); ++row)
    if (readings.thread[row] < trace.threads.size())
      processes[trace.threads.process_id[readings.thread[row]]].push_back(row);
  for (auto& [process, rows] : processes) {
    std::stable_sort(rows.begin(), rows.end(), [&](Row a, Row b) { return end_of(a) < end_of(b); });
    for (const Row row : rows) {
      const auto later = std::partition_point(rows.begin(), rows.end(),
                                              [&](Row one) { return end_of(one) <= readings.start_ns[row]; });
      if (later == rows.begin() || readings.dur_ns[row] == 0) continue;
      if (wanted_cpu(readings.thread[row], end_of(row), readings.dur_ns[row])) continue;
      const int64_t used_ns = readings.cpu_ns[row] - readings.cpu_ns[*(later - 1)];
      if (used_ns >= 0 && used_ns * kUsedMostPart <= readings.dur_ns[row])
        stretches_[readings.thread[row]].push_back({readings.start_ns[row], end_of(row)});
    }
  }
  for (auto& [thread, stretches] : stretches_)
    std::sort(stretches.begin(), stretches.end(),
              [](const Stretch& a, const Stretch& b) { return a.start_ns < b.start_ns; });
}

bool NoInput::holds(ThreadId thread, int64_t start_ns, int64_t end_ns) const {
  const auto found = stretches_.find(thread);
  if (found == stretches_.end()) return false;
  const std::vector<Stretch>& of = found->second;
  const auto behind =
      std::partition_point(of.begin(), of.end(), [&](const Stretch& one) { return one.start_ns <= start_ns; });
  return behind != of.begin() && end_ns <= (behind - 1)->end_ns;
}

int64_t NoInput::within_ns(ThreadId thread, int64_t start_ns, int64_t end_ns) const {
  const auto found = stretches_.find(thread);
  if (found == stretches_.end()) return 0;
  const std::vector<Stretch>& of = found->second;
  int64_t sum = 0;
  for (auto one = std::partition_point(of.begin(), of.end(),
                                       [&](const Stretch& stretch) { return stretch.end_ns <= start_ns; });
       one != of.end() && one->start_ns < end_ns; ++one)
    sum += std::min(end_ns, one->end_ns) - std::max(start_ns, one->start_ns);
  return sum;
}

}  // namespace llmprof
