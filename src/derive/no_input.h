// Long code between two CUDA calls in which the program did nothing: none of its threads used a CPU, so it slept, or
// waited for a request, another process or a file. No code of its own could be quicker there.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "trace/trace.h"

namespace llmprof {

// By readings of the CPU time of the process (Trace::cpu_readings): what it used from the reading before a stretch to
// the end of it is at most a fifth of the stretch. What it used before the stretch counts too, so a program that works
// in between is not taken for one that waits. Nothing is known of a first stretch, and of recordings without readings
// or with a clock that counts whole milliseconds.
class NoInput {
 public:
  explicit NoInput(const Trace& trace);
  bool empty() const { return stretches_.empty(); }
  // Whether all of a time of a thread is such.
  bool holds(ThreadId thread, int64_t start_ns, int64_t end_ns) const;
  // How much of it.
  int64_t within_ns(ThreadId thread, int64_t start_ns, int64_t end_ns) const;

 private:
  struct Stretch {
    int64_t start_ns = 0, end_ns = 0;
  };
  std::map<ThreadId, std::vector<Stretch>> stretches_;  // in order of time
};

}  // namespace llmprof
