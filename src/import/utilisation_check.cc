#include "import/utilisation_check.h"

#include <algorithm>
#include <iterator>

namespace llmprof {
namespace {

// The driver's window is 1/6 s to 1 s long (nvidia-smi's manual, utilization.gpu).
constexpr int64_t kUtilisationWindowNs = 1'000'000'000;
// Between them a reading may say either.
constexpr double kBusyLeast = 0.8, kIdleMost = 0.02;  // of the recording, over all of the span
constexpr float kSaidBusy = 0.5F, kSaidIdle = 0.15F;  // by the log

using TimePairs = std::vector<std::pair<int64_t, int64_t>>;

void sort_and_merge(TimePairs& spans) {
  if (spans.empty()) return;
  std::sort(spans.begin(), spans.end());
  size_t last = 0;
  for (size_t i = 1; i < spans.size(); ++i) {
    if (spans[i].first <= spans[last].second)
      spans[last].second = std::max(spans[last].second, spans[i].second);
    else
      spans[++last] = spans[i];
  }
  spans.resize(last + 1);
}

// The first of sorted, disjoint spans that begins behind the moment.
TimePairs::const_iterator first_behind(const TimePairs& spans, int64_t time_ns) {
  return std::upper_bound(spans.begin(), spans.end(), std::pair(time_ns, INT64_MAX));
}

}  // namespace

RecordedBusy::RecordedBusy(const Trace& trace) {
  const GpuOps& ops = trace.gpu_ops;
  for (Row op = 0; op < ops.size(); ++op) {
    if (ops.stream[op] == kNoRow) continue;
    const int64_t start = ops.start_ns[op], end = start + ops.dur_ns[op];
    devices_[trace.streams.device[ops.stream[op]]].busy.emplace_back(start, end);
    from_ns_ = std::min(from_ns_, start);
    to_ns_ = std::max(to_ns_, end);
  }
  for (auto& [ordinal, device] : devices_) {
    sort_and_merge(device.busy);
    int64_t sum = 0;
    for (const auto& [start, end] : device.busy) {
      device.before.push_back(sum);
      sum += end - start;
    }
  }
  const Recorded& levels = trace.recorded;
  for (Row row = 0; row < levels.size(); ++row)
    if (levels.level[row] == RecordingLevel::kOff || levels.level[row] == RecordingLevel::kLight)
      unrecorded_.emplace_back(levels.start_ns[row] - std::max<int64_t>(0, levels.cut_ns[row]),
                               levels.start_ns[row] + levels.dur_ns[row]);
  sort_and_merge(unrecorded_);
}

int64_t RecordedBusy::busy_before(const Device& device, int64_t time_ns) {
  const auto after = first_behind(device.busy, time_ns);
  if (after == device.busy.begin()) return 0;
  const auto at = static_cast<size_t>(after - device.busy.begin()) - 1;
  return device.before[at] + std::min(time_ns, device.busy[at].second) - device.busy[at].first;
}

bool RecordedBusy::recorded(int64_t from_ns, int64_t to_ns) const {
  if (from_ns < from_ns_ || to_ns > to_ns_) return false;
  const auto behind = first_behind(unrecorded_, to_ns - 1);
  return behind == unrecorded_.begin() || std::prev(behind)->second <= from_ns;
}

UtilisationAgreement RecordedBusy::compare(const NvmlSamples& samples, const std::map<int32_t, int32_t>& device,
                                           int64_t shift_ns, int64_t half_ns) const {
  UtilisationAgreement out;
  for (Row row = 0; row < samples.size(); ++row) {
    const float said = samples.gpu_util_frac[row];
    const int64_t time = samples.time_ns[row] + shift_ns;
    const int64_t from = time - half_ns - kUtilisationWindowNs, until = time + half_ns;
    if (!(said >= 0) || !recorded(from, until)) continue;
    const auto to = device.find(samples.device[row]);
    const auto found = to == device.end() ? devices_.end() : devices_.find(to->second);
    if (found == devices_.end()) continue;
    // Busy or idle in each part of the span that a driver's window may be.
    constexpr int kParts = 8;
    const int64_t part = (until - from) / kParts;
    bool busy = true, idle = true;
    for (int i = 0; i < kParts; ++i) {
      const int64_t start = from + i * part;
      const double share =
          static_cast<double>(busy_before(found->second, start + part) - busy_before(found->second, start)) /
          static_cast<double>(part);
      busy = busy && share >= kBusyLeast;
      idle = idle && share <= kIdleMost;
    }
    if (!busy && !idle) continue;
    ++out.compared;
    out.busy_seen = out.busy_seen || busy;
    out.idle_seen = out.idle_seen || idle;
    out.agreeing += busy ? said >= kSaidBusy : said <= kSaidIdle;
  }
  return out;
}

}  // namespace llmprof
