// How long the threads of this process have stood ready to run and waited for a core: the kernel's own count of each,
// in /proc/self/task/*/schedstat. Other programs take cores without being seen otherwise; a time in which nothing
// waited is one that they have not lengthened by that.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace llmprof::device::cpu {

class RunQueue {
 public:
  // `root` stands in for "/" in tests.
  explicit RunQueue(std::string root = "");
  ~RunQueue();
  RunQueue(const RunQueue&) = delete;
  RunQueue& operator=(const RunQueue&) = delete;

  // Looks for threads that have come since.
  void find_threads();
  // Of all threads together, since each began; empty where the kernel does not count it.
  std::optional<int64_t> waited_ns() const;

 private:
  void close_all();

  std::string folder_;
  std::vector<int> files_;
};

}  // namespace llmprof::device::cpu
