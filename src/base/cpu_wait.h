// How long threads were ready to run and had no CPU: another program, another thread or the quota of a container had
// it. The kernel counts that for each thread (second number of /proc/.../schedstat, ns).
#pragma once

#include <cstdint>
#include <map>

namespace llmprof {

// Of the calling thread, since an earlier call with the same `last`.
struct CpuWait {
  int64_t switches = -1;  // of the thread to another one, ever
  int64_t total_ns = -1;
};
// -1: the first call, or a system that does not count it. Allocates nothing and takes no lock: the recorder calls it
// inside programs.
int64_t cpu_wait_since_ns(CpuWait& last);

// The wait of whichever thread of this process waited longest since the last call. Threads that work on one thing
// together wait for that one.
class ProcessCpuWait {
 public:
  int64_t since_last_ns();  // as above

 private:
  int64_t switches_ = -1;
  std::map<int64_t, int64_t> total_ns_;  // by thread
};

}  // namespace llmprof
