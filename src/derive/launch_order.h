// GPU activities in the order in which the host launched them, per device. All nodes of one CUDA graph launch share
// its time. An activity whose call is not in the recording follows the activity before it on its stream and shares its
// time, unless the stream was idle before it: then it was launched when it began, or before the next launch that is
// known. With no calls at all the order is that of execution and the times are those of the GPU.
#pragma once

#include <map>
#include <span>
#include <vector>

#include "trace/trace.h"

namespace llmprof {

struct LaunchOrder {
  int32_t device = 0;
  ThreadId main_thread = kNoRow;  // the thread that launched most
  std::vector<GpuOpId> gpu;       // row in gpu_ops
  std::vector<int64_t> time_ns;   // start of the launching call, never decreasing
  std::vector<ThreadId> thread;   // row in threads, kNoRow if unknown

  size_t size() const { return gpu.size(); }
};

// One order per device with activity, by device ordinal. Linear in the activities and the calls.
std::vector<LaunchOrder> order_launches(const Trace& trace);

// Whether one thread launched all: most programs have one that does, and of millions of launches a copy is worth
// avoiding.
bool is_of_one_thread(const LaunchOrder& order);

// Launch times of one device, by thread, rising. `order` must outlive them.
class LaunchTimes {
 public:
  explicit LaunchTimes(const LaunchOrder& order);
  const std::map<Row, std::span<const int64_t>>& by_thread() const { return by_thread_; }
  std::span<const int64_t> of(Row thread) const;

 private:
  std::map<Row, std::vector<int64_t>> own_;  // empty where one thread launched all
  std::map<Row, std::span<const int64_t>> by_thread_;
};

// The middle one of the launches (rising) in [from, to); `from` where there is none.
int64_t middle_launch(std::span<const int64_t> launches, int64_t from, int64_t to);

}  // namespace llmprof
