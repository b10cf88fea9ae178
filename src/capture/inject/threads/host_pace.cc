#include "capture/inject/threads/host_pace.h"

#include "base/pace_work.h"

namespace llmprof::inject {

int64_t probe_host_pace(ThreadLog& log, int64_t time_ns) {
  ThreadState& state = thread_state;
  if (time_ns - state.pace_ns < kPaceEveryNs) return time_ns;
  const int64_t start_ns = now_ns();
  asm volatile("" ::"r"(pace_work()));
  const int64_t end_ns = now_ns();
  state.pace_ns = end_ns;
  Event event;
  event.kind = EventKind::kHostPace;
  event.start_ns = start_ns;
  event.end_ns = end_ns;
  event.handle = static_cast<uint64_t>(cpu_wait_since_ns(state.cpu_wait));
  append(log, event);
  return end_ns;
}

}  // namespace llmprof::inject
