// What the calls so far gave the GPUs, by thread, and by process and device: the last of it to end. Calls are taken in
// the order in which they began.
#pragma once

#include <algorithm>
#include <vector>

#include "replay/timeline.h"

namespace llmprof::replay {

class LastGiven {
 public:
  explicit LastGiven(const Timeline& timeline) : timeline_(timeline), by_thread_(timeline.process.size(), kNoRow) {
    for (const int32_t device : timeline.trace.streams.device)
      devices_ = std::max(devices_, static_cast<size_t>(std::max(device, 0)) + 1);
    uint32_t processes = 0;
    for (const uint32_t process : timeline.process) processes = std::max(processes, process + 1);
    by_device_.assign(processes * devices_, kNoRow);
  }

  // `end_of(op)`: when an activity ends.
  template <class EndOf>
  void take(ApiCallId call, const EndOf& end_of) {
    const ThreadId thread = timeline_.trace.api_calls.thread[call];
    for (uint32_t i = timeline_.launched_begin[call]; i < timeline_.launched_begin[call + 1]; ++i) {
      const GpuOpId op = timeline_.launched[i];
      by_thread_[thread] = later(by_thread_[thread], op, end_of);
      const int32_t device = timeline_.trace.device_of(op);
      if (device < 0) continue;
      GpuOpId& of_device = by_device_[timeline_.process[thread] * devices_ + static_cast<size_t>(device)];
      of_device = later(of_device, op, end_of);
    }
  }

  // What a call of kThread, kDevice or kFree waits for; kNoRow if there is nothing.
  template <class EndOf>
  GpuOpId last_for(ApiCallId call, const EndOf& end_of) const {
    const ThreadId thread = timeline_.trace.api_calls.thread[call];
    if (timeline_.awaited[call] == Awaited::kThread) return by_thread_[thread];
    GpuOpId last = kNoRow;
    for (size_t device = 0; device < devices_; ++device)
      if (timeline_.awaits_device(call, static_cast<int32_t>(device)))
        last = later(last, by_device_[timeline_.process[thread] * devices_ + device], end_of);
    return last;
  }

 private:
  template <class EndOf>
  static GpuOpId later(GpuOpId a, GpuOpId b, const EndOf& end_of) {
    if (a == kNoRow || b == kNoRow) return a == kNoRow ? b : a;
    return end_of(b) > end_of(a) ? b : a;
  }

  const Timeline& timeline_;
  std::vector<GpuOpId> by_thread_;
  size_t devices_ = 1;
  std::vector<GpuOpId> by_device_;  // process by process
};

}  // namespace llmprof::replay
