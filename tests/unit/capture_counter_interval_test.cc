// How often counters are sampled, and when that follows the program's steps. The sampler that does it is in
// capture_samplers_counters_test.cc.
#include <gtest/gtest.h>

#include "capture/samplers/pm_sampler.h"
#include "capture/samplers/step_interval.h"

namespace llmprof::samplers {
namespace {

TEST(CounterInterval, IsLongerWhereStepsAreLongOrCpusAreFew) {
  EXPECT_EQ(default_interval_ns(0, 16), 200000);
  EXPECT_EQ(default_interval_ns(1'400'000, 16), 200000);
  EXPECT_EQ(default_interval_ns(9'000'000, 16), 900000);
  EXPECT_EQ(default_interval_ns(3'000'000'000, 16), 2000000);
  EXPECT_EQ(default_interval_ns(0, 2), 500000);
}

// Asked ten times a second, as the sampler does in its loop.
struct Follower {
  StepInterval steps;
  int64_t now_ns = 5'000'000'000, interval_ns = 200'000;
  int changes = 0;

  // The interval after so long a time.
  int64_t after_ms(int64_t ms, int64_t step_ns, bool recorded = false) {
    for (const int64_t end_ns = now_ns + ms * 1'000'000; now_ns < end_ns; now_ns += 100'000'000) {
      const int64_t due_ns = steps.due(now_ns, step_ns, default_interval_ns(step_ns, 16), interval_ns, recorded);
      if (due_ns == 0) continue;
      interval_ns = due_ns;
      ++changes;
    }
    return interval_ns;
  }
};

constexpr int64_t kStepMs = 1'000'000;

TEST(StepInterval, WaitsUntilStepsHaveSettled) {
  Follower follower;
  EXPECT_EQ(follower.after_ms(3000, 0), 200'000);
  EXPECT_EQ(follower.after_ms(900, 10 * kStepMs), 200'000);
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(follower.after_ms(900, 60 * kStepMs), 200'000) << "they change";
    EXPECT_EQ(follower.after_ms(900, 10 * kStepMs), 200'000) << "they change";
  }
  EXPECT_EQ(follower.after_ms(200, 12 * kStepMs), 1'200'000) << "within a third of what was seen a second ago";
}

TEST(StepInterval, RecordedStepsKeepTheirCountersForAWhile) {
  Follower follower;
  EXPECT_EQ(follower.after_ms(3900, 10 * kStepMs, true), 200'000);
  EXPECT_EQ(follower.after_ms(200, 10 * kStepMs, true), 1'000'000) << "kernels are recorded all the time";
  Follower pausing;
  EXPECT_EQ(pausing.after_ms(2000, 10 * kStepMs, true), 200'000);
  EXPECT_EQ(pausing.after_ms(100, 10 * kStepMs, false), 1'000'000);
}

TEST(StepInterval, SmallChangesAndShorterStepsAreNotFollowed) {
  Follower follower;
  EXPECT_EQ(follower.after_ms(5000, 29 * kStepMs / 10), 200'000) << "not worth a gap";
  EXPECT_EQ(follower.after_ms(5000, 3 * kStepMs), 300'000);
  EXPECT_EQ(follower.after_ms(5000, 5 * kStepMs), 300'000) << "the second time for twice as long steps only";
  EXPECT_EQ(follower.after_ms(5000, kStepMs), 300'000);
  EXPECT_EQ(follower.after_ms(5000, 6 * kStepMs), 600'000);
  EXPECT_EQ(follower.changes, 2);
}

TEST(StepInterval, ThreeChangesAreTheMost) {
  Follower follower;
  for (const int64_t step_ms : {3, 6, 12, 1, 24}) follower.after_ms(5000, step_ms * kStepMs);
  EXPECT_EQ(follower.interval_ns, 1'200'000);
  EXPECT_EQ(follower.changes, 3);
}

}  // namespace
}  // namespace llmprof::samplers
