#include <gtest/gtest.h>

#include <random>

#include "derive/steps.h"
#include "derive_trace_builder.h"

namespace llmprof {
namespace {

TEST(Busy, OverlapOfStreamsCountsOnce) {
  TestTrace b;
  const Row second = b.stream(0, 8);
  b.gpu("a", 100, 50);
  b.gpu("b", 120, 100, 0, second);  // 120..220 covers 150..220 alone
  b.gpu("c", 220, 10);              // touches: same interval
  b.gpu("d", 300, 5);
  Trace& trace = b.build();
  find_busy(trace);
  ASSERT_EQ(trace.busy_intervals.size(), 2U);
  EXPECT_EQ(trace.busy_intervals.start_ns[0], 100);
  EXPECT_EQ(trace.busy_intervals.end_ns[0], 230);
  EXPECT_EQ(trace.busy_intervals.start_ns[1], 300);
  EXPECT_EQ(trace.diagnostics.count(DiagnosticId::kOverlapOnStream), 0U);
  ASSERT_EQ(trace.windows.size(), 1U);
  EXPECT_EQ(trace.windows[0].start_ns, 100);
  EXPECT_EQ(trace.windows[0].end_ns, 305);
}

TEST(Busy, OverlapOnOneStreamIsReported) {
  TestTrace b;
  b.gpu("a", 100, 50);
  b.gpu("b", 140, 20);
  b.gpu("inside", 145, 2);
  Trace& trace = b.build();
  find_busy(trace);
  EXPECT_EQ(trace.diagnostics.count(DiagnosticId::kOverlapOnStream), 2U);
  ASSERT_EQ(trace.busy_intervals.size(), 1U);
  EXPECT_EQ(trace.busy_intervals.end_ns[0], 160);
}

TEST(Busy, DevicesAreApart) {
  TestTrace b;
  const Row other = b.stream(3, 7);
  b.gpu("a", 0, 10);
  b.gpu("b", 5, 10, 0, other);
  b.gpu("c", 20, 10);
  Trace& trace = b.build();
  find_busy(trace);
  ASSERT_EQ(trace.busy_intervals.size(), 3U);
  EXPECT_EQ(trace.busy_intervals.device[0], 0);
  EXPECT_EQ(trace.busy_intervals.device[1], 0);
  EXPECT_EQ(trace.busy_intervals.device[2], 3);
  ASSERT_EQ(trace.windows.size(), 2U);
  EXPECT_EQ(trace.windows[1].device, 3);
  EXPECT_EQ(trace.windows[1].start_ns, 5);
  EXPECT_EQ(trace.windows[1].end_ns, 15);
}

TEST(Busy, NoActivityNoWindow) {
  TestTrace b;
  Trace& trace = b.derive_all();
  EXPECT_TRUE(trace.windows.empty());
  EXPECT_TRUE(trace.busy_intervals.empty());
  EXPECT_TRUE(trace.gaps.empty());
}

TEST(Busy, IndexAgreesWithPlainSum) {
  TestTrace b;
  const Row other = b.stream(1, 7);
  std::mt19937 random(7);
  int64_t time = 0;
  for (int i = 0; i < 300; ++i) {
    time += static_cast<int64_t>(random() % 40);
    b.gpu("k", time, static_cast<int64_t>(random() % 30), 0, random() % 3 == 0 ? other : 0);
  }
  Trace& trace = b.build();
  find_busy(trace);
  const BusyIndex busy(trace);
  for (int i = 0; i < 500; ++i) {
    const int64_t start = static_cast<int64_t>(random() % 6000) - 100;
    const int64_t end = start + static_cast<int64_t>(random() % 500) - 20;
    for (const int32_t device : {0, 1}) {
      int64_t sum = 0;
      for (int64_t t = start; t < end; ++t) {
        for (size_t k = 0; k < trace.busy_intervals.size(); ++k) {
          const bool inside = trace.busy_intervals.device[k] == device && trace.busy_intervals.start_ns[k] <= t &&
                              t < trace.busy_intervals.end_ns[k];
          sum += inside ? 1 : 0;
        }
      }
      ASSERT_EQ(busy.busy_in(device, start, end), sum);
      ASSERT_EQ(busy_in(trace, device, start, end), sum);
    }
  }
  EXPECT_EQ(busy.busy_in(9, 0, 1000), 0);
}

}  // namespace
}  // namespace llmprof
