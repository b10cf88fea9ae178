// How a sampler shares the machine with the program that it watches: whatever it computes can wait, the program's
// threads cannot. The environment can change that, to find out what a sampler costs
// (docs/howto/reproduce-gpu-results.md):
//   LLMPROF_COUNTERS_SCHED   normal, batch (default) or idle: the scheduling policy; batch and idle are niced as well
//   LLMPROF_COUNTERS_CPUS    CPUs that it may use, as "12-15" or "3,7"
//   LLMPROF_COUNTERS_DRAIN_MS   how often the hardware buffer is emptied
//   LLMPROF_COUNTERS_DECODE  off: nothing is decoded while the program runs, so that only the GPU's part is left
#pragma once

#include <string_view>

namespace llmprof::samplers {

struct BackgroundSwitches {
  bool decode = true;
  int drain_ms = 0;  // 0: as it was
};

// Of the calling thread, and of threads that it starts from now on.
BackgroundSwitches go_to_background();

// The CPUs of a list as bits, the first 1024; false if the text is none. For sched_setaffinity.
bool parse_cpus(std::string_view text, unsigned long (&bits)[16]);

}  // namespace llmprof::samplers
