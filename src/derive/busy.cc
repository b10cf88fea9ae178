// When each device was busy: one sweep over the activities, which are sorted by start.
#include <algorithm>
#include <limits>
#include <map>

#include "derive/derive.h"
#include "derive/steps.h"

namespace llmprof {
namespace {

struct DeviceSweep {
  int32_t device = 0;
  std::vector<int64_t> starts, ends;
};

// Leaves `from` empty. Takes its memory where `to` has nothing yet: most programs use one GPU.
void append_moved(std::vector<int64_t>& to, std::vector<int64_t>& from) {
  if (to.empty())
    to.swap(from);
  else
    to.insert(to.end(), from.begin(), from.end());
  std::vector<int64_t>().swap(from);
}

}  // namespace

void find_busy(Trace& trace) {
  trace.busy_intervals.clear();
  trace.windows.clear();
  std::map<int32_t, uint32_t> slot_of_device;
  for (const int32_t device : trace.streams.device) slot_of_device.emplace(device, 0);
  std::vector<DeviceSweep> sweeps;
  for (std::pair<const int32_t, uint32_t>& entry : slot_of_device) {
    entry.second = static_cast<uint32_t>(sweeps.size());
    sweeps.emplace_back().device = entry.first;
  }
  std::vector<uint32_t> slot_of_stream(trace.streams.size());
  for (size_t s = 0; s < trace.streams.size(); ++s) slot_of_stream[s] = slot_of_device[trace.streams.device[s]];

  std::vector<int64_t> stream_end(trace.streams.size(), std::numeric_limits<int64_t>::min());
  uint64_t overlaps = 0;
  for (size_t i = 0; i < trace.gpu_ops.size(); ++i) {
    const StreamId stream = trace.gpu_ops.stream[i];
    const int64_t start = trace.gpu_ops.start_ns[i];
    const int64_t end = start + trace.gpu_ops.dur_ns[i];
    if (start < stream_end[stream]) ++overlaps;
    stream_end[stream] = std::max(stream_end[stream], end);
    DeviceSweep& sweep = sweeps[slot_of_stream[stream]];
    if (!sweep.ends.empty() && start <= sweep.ends.back()) {
      sweep.ends.back() = std::max(sweep.ends.back(), end);
    } else {
      sweep.starts.push_back(start);
      sweep.ends.push_back(end);
    }
  }
  if (overlaps > 0) trace.diagnostics.add(DiagnosticId::kOverlapOnStream, {}, overlaps);

  BusyIntervals& busy = trace.busy_intervals;
  for (DeviceSweep& sweep : sweeps) {
    if (sweep.starts.empty()) continue;
    trace.windows.push_back({sweep.device, sweep.starts.front(), sweep.ends.back()});
    busy.device.insert(busy.device.end(), sweep.starts.size(), sweep.device);
    append_moved(busy.start_ns, sweep.starts);
    append_moved(busy.end_ns, sweep.ends);
  }
}

BusyIndex::BusyIndex(const Trace& trace) {
  const BusyIntervals& busy = trace.busy_intervals;
  for (size_t i = 0; i < busy.size(); ++i) {
    if (devices_.empty() || devices_.back().device != busy.device[i]) {
      devices_.emplace_back();
      devices_.back().device = busy.device[i];
      devices_.back().first = i;
      devices_.back().before_ns.push_back(0);
    }
    Device& device = devices_.back();
    device.before_ns.push_back(device.before_ns.back() + busy.end_ns[i] - busy.start_ns[i]);
  }
  trace_ = &trace;
}

// Busy time of the device before `time`.
int64_t BusyIndex::busy_before(const Device& device, int64_t time) const {
  const BusyIntervals& busy = trace_->busy_intervals;
  const std::vector<int64_t>::const_iterator first = busy.start_ns.begin() + static_cast<ptrdiff_t>(device.first);
  const std::vector<int64_t>::const_iterator last = first + static_cast<ptrdiff_t>(device.before_ns.size() - 1);
  const size_t count = static_cast<size_t>(std::lower_bound(first, last, time) - first);  // intervals that start before
  if (count == 0) return 0;
  const int64_t late = std::max<int64_t>(0, busy.end_ns[device.first + count - 1] - time);
  return device.before_ns[count] - late;
}

int64_t BusyIndex::busy_in(int32_t device, int64_t start_ns, int64_t end_ns) const {
  if (end_ns <= start_ns) return 0;
  for (const Device& entry : devices_) {
    if (entry.device == device) return busy_before(entry, end_ns) - busy_before(entry, start_ns);
  }
  return 0;
}

int64_t busy_in(const Trace& trace, int32_t device, int64_t start_ns, int64_t end_ns) {
  const BusyIntervals& busy = trace.busy_intervals;
  if (end_ns <= start_ns) return 0;
  int64_t total = 0;
  const std::vector<int32_t>::const_iterator begin = std::lower_bound(busy.device.begin(), busy.device.end(), device);
  const std::vector<int32_t>::const_iterator end = std::upper_bound(begin, busy.device.end(), device);
  const ptrdiff_t first = begin - busy.device.begin();
  const ptrdiff_t last = end - busy.device.begin();
  ptrdiff_t i =
      std::upper_bound(busy.end_ns.begin() + first, busy.end_ns.begin() + last, start_ns) - busy.end_ns.begin();
  for (; i < last && busy.start_ns[static_cast<size_t>(i)] < end_ns; ++i) {
    const size_t row = static_cast<size_t>(i);
    total += std::min(end_ns, busy.end_ns[row]) - std::max(start_ns, busy.start_ns[row]);
  }
  return total;
}

}  // namespace llmprof
