// How fast the CPU that a thread runs on is at the moment. A core whose other half runs another program, perhaps of
// another virtual machine, takes half as long again for the same code, for milliseconds or for seconds, and nothing
// that the system counts shows it. So now and then a thread of the program does the same work (base/pace_work.h) and
// notes how long that took, and how long it had no CPU at all since the last time: where it is about to wait for the
// GPU, which hides most of it, and between calls of a math library.
#pragma once

#include <cstdint>

#include "capture/inject/threads/thread_events.h"

namespace llmprof::inject {

// A thread's probes are at least so far apart: 4 us in 5 ms at most.
constexpr int64_t kPaceEveryNs = 5'000'000;

// Probes if the thread's last one is long enough ago; returns the time at its end.
int64_t probe_host_pace(ThreadLog& log, int64_t time_ns);

}  // namespace llmprof::inject
