#include "base/parallel.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <thread>
#include <vector>

namespace llmprof {

unsigned worker_count() {
  static const unsigned count = [] {
    if (const char* text = std::getenv("LLMPROF_THREADS"); text != nullptr) {
      const int wanted = std::atoi(text);
      if (wanted > 0) return static_cast<unsigned>(std::min(wanted, 256));
    }
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) == 0) return static_cast<unsigned>(std::max(1, CPU_COUNT(&set)));
    return std::max(1U, std::thread::hardware_concurrency());
  }();
  return count;
}

void parallel_for(size_t n, const std::function<void(size_t)>& body) {
  const size_t workers = std::min<size_t>(n, worker_count());
  if (workers <= 1) {
    for (size_t i = 0; i < n; ++i) body(i);
    return;
  }
  std::atomic<size_t> next{0};
  const auto work = [&] {
    for (size_t i = next.fetch_add(1); i < n; i = next.fetch_add(1)) body(i);
  };
  std::vector<std::jthread> threads;
  threads.reserve(workers - 1);
  for (size_t i = 1; i < workers; ++i) threads.emplace_back(work);
  work();
}

void parallel_run(std::initializer_list<std::function<void()>> jobs) {
  parallel_for(jobs.size(), [&](size_t i) { (jobs.begin() + i)->operator()(); });
}

}  // namespace llmprof
