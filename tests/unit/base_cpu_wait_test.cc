#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/cpu_wait.h"

namespace llmprof {
namespace {

// Whether the system counts it at all; where it does not, that is what is said.
bool counted() { return access("/proc/thread-self/schedstat", R_OK) == 0; }

// Threads of this process that share one CPU wait for each other, half of the time each.
TEST(CpuWait, ThreadsOnOneCpuWaitForIt) {
  CpuWait known;
  cpu_wait_since_ns(known);
  if (!counted()) {
    EXPECT_EQ(known.total_ns, -1);
    EXPECT_EQ(cpu_wait_since_ns(known), -1);
    return;
  }
  ASSERT_GE(known.total_ns, 0);
  cpu_set_t allowed;
  ASSERT_EQ(sched_getaffinity(0, sizeof allowed, &allowed), 0);
  cpu_set_t one;
  CPU_ZERO(&one);
  for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu)
    if (CPU_ISSET(cpu, &allowed)) CPU_SET(cpu, &one);
  constexpr int64_t kFor = 300'000'000;
  ProcessCpuWait process;
  std::atomic<int> ready{0};
  std::vector<int64_t> first(2), second(2);
  std::vector<std::thread> threads;
  EXPECT_EQ(process.since_last_ns(), -1) << "since when?";
  for (size_t i = 0; i < 2; ++i)
    threads.emplace_back([&, i] {
      sched_setaffinity(0, sizeof one, &one);
      CpuWait wait;
      first[i] = cpu_wait_since_ns(wait);
      ++ready;
      while (ready < 2) std::this_thread::yield();
      const int64_t until_ns = monotonic_ns() + kFor;
      while (monotonic_ns() < until_ns) {
      }
      second[i] = cpu_wait_since_ns(wait);
      if (++ready == 4) {
        EXPECT_GE(process.since_last_ns(), 0);
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(first, (std::vector<int64_t>{-1, -1})) << "since when?";
  EXPECT_GT(second[0] + second[1], kFor / 2);
}

TEST(CpuWait, AThreadThatWasNeverSwitchedDidNotWait) {
  CpuWait wait;
  cpu_wait_since_ns(wait);
  if (!counted()) {
    EXPECT_EQ(cpu_wait_since_ns(wait), -1);
    return;
  }
  // Two calls next to each other are undisturbed, if not the first time.
  bool undisturbed = false;
  for (int i = 0; i < 100 && !undisturbed; ++i) undisturbed = cpu_wait_since_ns(wait) == 0;
  EXPECT_TRUE(undisturbed);
}

}  // namespace
}  // namespace llmprof
