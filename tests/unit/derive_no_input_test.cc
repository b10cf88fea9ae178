// Programs that wait for something that is no GPU, and launches that wait for their kernel.
#include <gtest/gtest.h>

#include "derive/blocking_launches.h"
#include "derive/no_input.h"
#include "derive_trace_builder.h"

namespace llmprof {
namespace {

// Code of 1 ms each 10 ms, in which the process used so much of its CPUs; in between it used 50 us.
Trace read(int64_t used_ns, int64_t unit_ns = 1) {
  TestTrace b;
  int64_t cpu_ns = 7'000'001;
  for (int i = 0; i < 5; ++i) {
    cpu_ns += used_ns + 50'000;
    TraceBuilder(b.trace).add<CpuReadings>(
        {.start_ns = i * 10'000'000, .dur_ns = 1'000'000, .thread = 0, .cpu_ns = cpu_ns / unit_ns * unit_ns});
  }
  b.annotation("thread", 0, 1);
  return std::move(b.build());
}

TEST(NoInput, IsLongCodeThatNoCpuRan) {
  const NoInput idle(read(10'000));
  EXPECT_FALSE(idle.holds(0, 100, 200)) << "nothing is known before the first reading";
  EXPECT_TRUE(idle.holds(0, 10'000'000, 11'000'000));
  EXPECT_TRUE(idle.holds(0, 10'300'000, 10'400'000));
  EXPECT_FALSE(idle.holds(0, 10'300'000, 11'000'001));
  EXPECT_FALSE(idle.holds(1, 10'300'000, 10'400'000)) << "another thread";
  EXPECT_EQ(idle.within_ns(0, 10'900'000, 20'200'000), 100'000 + 200'000);
  EXPECT_TRUE(NoInput(read(160'000)).empty()) << "and 50 us before it: more than a fifth";
  EXPECT_TRUE(NoInput(read(900'000)).empty()) << "it worked";
  EXPECT_TRUE(NoInput(read(10'000, 1'000'000)).empty()) << "a clock of whole milliseconds tells nothing of one";
  EXPECT_TRUE(NoInput(Trace()).empty());
}

// Code of 2 ms behind a wait that keeps a CPU busy for 3 ms, all of which lie between two readings at ends of code.
TEST(NoInput, IsSeenBehindWaitsThatUseACpu) {
  for (const bool at_waits : {false, true}) {
    TestTrace b;
    int64_t cpu_ns = 7'000'001;
    for (int i = 0; i < 5; ++i) {
      const int64_t waited = i * 5'000'000 + 3'000'000;
      cpu_ns += 3'000'000;
      if (at_waits)
        TraceBuilder(b.trace).add<CpuReadings>({.start_ns = waited, .dur_ns = 0, .thread = 0, .cpu_ns = cpu_ns});
      cpu_ns += 40'000;
      TraceBuilder(b.trace).add<CpuReadings>({.start_ns = waited, .dur_ns = 2'000'000, .thread = 0, .cpu_ns = cpu_ns});
    }
    b.annotation("thread", 0, 1);
    const NoInput idle(std::move(b.build()));
    EXPECT_EQ(idle.holds(0, 8'000'000, 10'000'000), at_waits);
    EXPECT_FALSE(idle.holds(0, 7'000'000, 8'000'000)) << "the wait itself";
  }
}

TEST(NoInput, IsNoneWhereTheThreadWantedACpu) {
  for (const int64_t waited_ns : {100'000, 900'000}) {
    Trace trace = read(10'000);
    for (int i = 0; i < 5; ++i)
      TraceBuilder(trace).add<HostPaces>(
          {.start_ns = i * 10'000'000 + 2'000'000, .dur_ns = 4'000, .thread = 0, .waited_ns = waited_ns});
    EXPECT_EQ(NoInput(trace).empty(), waited_ns == 900'000);
  }
}

// What the threads of a process use is used by none of another.
TEST(NoInput, KeepsProcessesApart) {
  Trace trace = read(10'000);
  const ThreadId other = TraceBuilder(trace).add<Threads>({.process_id = 4242, .thread_id = 4242});
  for (int i = 0; i < 5; ++i)
    TraceBuilder(trace).add<CpuReadings>({.start_ns = i * 10'000'000 + 1'000'000,
                                          .dur_ns = 1'000'000,
                                          .thread = other,
                                          .cpu_ns = 100'000'003 + i * 1'000'000});
  const NoInput idle(trace);
  EXPECT_TRUE(idle.holds(0, 10'000'000, 11'000'000));
  EXPECT_FALSE(idle.holds(other, 11'000'000, 12'000'000));
}

// Kernels of 30 us behind launches that return so long after they began, and the GPU 5 us after that beginning.
Trace launched(int count, int64_t call_ns) {
  TestTrace b;
  for (int i = 0; i < count; ++i) {
    const int64_t at = i * 100'000;
    b.gpu("gemm", at + 5'000, 30'000, b.api("cudaLaunchKernel", at, call_ns));
  }
  return std::move(b.build());
}

TEST(BlockingLaunches, EndBehindTheirKernel) {
  const std::vector<std::pair<ApiCallId, int64_t>> found = blocking_launches(launched(40, 37'000));
  ASSERT_EQ(found.size(), 40U);
  for (const auto& [call, then_ns] : found) EXPECT_EQ(then_ns, 5'000) << "until the kernel begins";
  EXPECT_TRUE(blocking_launches(launched(40, 9'000)).empty());
  EXPECT_TRUE(blocking_launches(launched(10, 37'000)).empty()) << "too few to tell";
  EXPECT_TRUE(blocking_launches(Trace()).empty());
}

}  // namespace
}  // namespace llmprof
