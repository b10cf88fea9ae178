#include "derive/launch_order.h"

#include <algorithm>
#include <limits>
#include <map>
#include <unordered_map>

namespace llmprof {
namespace {

// What was queued behind other work begins within this after it; longer, and the stream had nothing to do.
constexpr int64_t kQueuedMaxNs = 20'000;

// Slot of each activity: 0 before every call, else 1 + row of the call it was launched by or follows.
std::vector<uint32_t> launch_slots(const Trace& trace) {
  const size_t count = trace.gpu_ops.size();
  std::vector<uint32_t> slots(count);
  std::vector<uint32_t> last_of_stream(trace.streams.size(), 0);
  for (size_t i = 0; i < count; ++i) {
    const ApiCallId api = i < trace.gpu_links.size() ? trace.gpu_links.api[i] : kNoRow;
    uint32_t& last = last_of_stream[trace.gpu_ops.stream[i]];
    if (api != kNoRow) last = api + 1;
    slots[i] = last;
  }
  return slots;
}

// What was last launched on a stream: its time, and the end of everything until then.
struct LastOfStream {
  int64_t time_ns = 0;
  int64_t end_ns = std::numeric_limits<int64_t>::max();
};

// All but the activity itself.
void append(const Trace& trace, GpuOpId gpu, uint32_t slot, LastOfStream& last, LaunchOrder& order) {
  const int64_t start = trace.gpu_ops.start_ns[gpu], end = trace.end_of(gpu);
  const bool linked = gpu < trace.gpu_links.size() && trace.gpu_links.api[gpu] != kNoRow;
  const bool first = last.end_ns == std::numeric_limits<int64_t>::max();
  if (slot == 0)
    last.time_ns = start;
  else if (linked || first)
    last.time_ns = trace.api_calls.start_ns[slot - 1];
  else if (start > last.end_ns && start - last.end_ns > kQueuedMaxNs)
    last.time_ns = start;
  last.end_ns = first ? end : std::max(last.end_ns, end);
  order.time_ns.push_back(last.time_ns);
  order.thread.push_back(slot > 0 ? trace.api_calls.thread[slot - 1] : kNoRow);
}

void finish(LaunchOrder& order) {
  for (size_t i = order.size(); i-- > 1;) order.time_ns[i - 1] = std::min(order.time_ns[i - 1], order.time_ns[i]);
  std::unordered_map<Row, size_t> counts;
  Row counted = kNoRow;
  size_t run = 0;  // launches of one thread come in long runs
  size_t most = 0;
  const auto add_run = [&] {
    if (counted == kNoRow) return;
    const size_t count = counts[counted] += run;
    if (count > most || (count == most && counted < order.main_thread)) {
      most = count;
      order.main_thread = counted;
    }
  };
  for (const ThreadId thread : order.thread) {
    if (thread != counted) {
      add_run();
      counted = thread;
      run = 0;
    }
    ++run;
  }
  add_run();
}

struct BySlot {
  std::vector<GpuOpId> gpu;    // those of one slot in their order
  std::vector<uint32_t> ends;  // by slot
};

BySlot by_slot(const Trace& trace) {
  const std::vector<uint32_t> slots = launch_slots(trace);
  BySlot out;
  std::vector<uint32_t>& at = out.ends;  // first where each slot begins
  at.assign(trace.api_calls.size() + 2, 0);
  for (const uint32_t slot : slots) ++at[slot + 1];
  for (size_t i = 1; i < at.size(); ++i) at[i] += at[i - 1];
  out.gpu.resize(slots.size());
  for (size_t i = 0; i < slots.size(); ++i) out.gpu[at[slots[i]]++] = static_cast<Row>(i);
  return out;
}

}  // namespace

std::vector<LaunchOrder> order_launches(const Trace& trace) {
  std::vector<LaunchOrder> orders;
  const size_t count = trace.gpu_ops.size();
  if (count == 0) return orders;
  BySlot sorted = by_slot(trace);
  std::map<int32_t, uint32_t> order_of_device;
  for (const int32_t device : trace.streams.device) order_of_device.emplace(device, 0);
  for (std::pair<const int32_t, uint32_t>& entry : order_of_device) {
    entry.second = static_cast<uint32_t>(orders.size());
    orders.emplace_back().device = entry.first;
  }
  std::vector<uint32_t> order_of_stream(trace.streams.size());
  for (size_t s = 0; s < trace.streams.size(); ++s) order_of_stream[s] = order_of_device[trace.streams.device[s]];
  if (orders.size() == 1) {
    orders[0].time_ns.reserve(count);
    orders[0].thread.reserve(count);
  }
  std::vector<LastOfStream> last(trace.streams.size());
  uint32_t slot = 0;
  for (size_t i = 0; i < count; ++i) {
    while (i >= sorted.ends[slot]) ++slot;
    const GpuOpId gpu = sorted.gpu[i];
    const StreamId stream = trace.gpu_ops.stream[gpu];
    LaunchOrder& order = orders[order_of_stream[stream]];
    append(trace, gpu, slot, last[stream], order);
    if (orders.size() > 1) order.gpu.push_back(gpu);
  }
  if (orders.size() == 1) orders[0].gpu = std::move(sorted.gpu);
  orders.erase(std::remove_if(orders.begin(), orders.end(), [](const LaunchOrder& o) { return o.gpu.empty(); }),
               orders.end());
  for (LaunchOrder& order : orders) finish(order);
  return orders;
}

bool is_of_one_thread(const LaunchOrder& order) {
  return std::all_of(order.thread.begin(), order.thread.end(),
                     [&](ThreadId thread) { return thread == order.main_thread; });
}

LaunchTimes::LaunchTimes(const LaunchOrder& order) {
  if (order.size() == 0) return;
  if (is_of_one_thread(order)) {
    by_thread_[order.main_thread] = order.time_ns;
    return;
  }
  // Nearly all of them: a vector that grows holds them twice.
  own_[order.main_thread].reserve(
      static_cast<size_t>(std::count(order.thread.begin(), order.thread.end(), order.main_thread)));
  std::vector<int64_t>* of_thread = nullptr;
  for (size_t i = 0; i < order.size(); ++i) {
    if (i == 0 || order.thread[i] != order.thread[i - 1]) of_thread = &own_[order.thread[i]];
    of_thread->push_back(order.time_ns[i]);
  }
  for (const auto& [thread, times] : own_) by_thread_[thread] = times;
}

std::span<const int64_t> LaunchTimes::of(Row thread) const {
  const auto found = by_thread_.find(thread);
  return found == by_thread_.end() ? std::span<const int64_t>() : found->second;
}

int64_t middle_launch(std::span<const int64_t> launches, int64_t from, int64_t to) {
  const auto first = std::lower_bound(launches.begin(), launches.end(), from);
  const auto last = std::lower_bound(first, launches.end(), to);
  return first < last ? *(first + (last - first - 1) / 2) : from;
}

}  // namespace llmprof
