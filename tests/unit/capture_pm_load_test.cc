// When decoding counts as too slow, and what is given up then. The sampler under load is in
// capture_samplers_counters_test.cc.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>

#include "capture/samplers/pm_load.h"
#include "capture/samplers/pm_metrics.h"

namespace llmprof::samplers {
namespace {

constexpr int64_t kMs = 1000000, kPeriodNs = 20 * kMs;

// The sampler's loop where decoding takes `cost` of the time that is decoded, and `longest_ns` at most what had piled
// up. Runs until it is behind; returns how long that took, -1 if it never was.
struct Drains {
  PmLoad load;
  int64_t begin_ns = 0, end_ns = 0, longest_ns = 0;
  explicit Drains(int64_t image_ns) : load(0, image_ns) {}

  // A tick, later by `held_ns`.
  void tick(double cost, int64_t held_ns = 0) {
    const int64_t next_ns = std::max(begin_ns + kPeriodNs, end_ns) + held_ns;
    end_ns = next_ns + static_cast<int64_t>(cost * static_cast<double>(next_ns - begin_ns));
    begin_ns = next_ns;
    longest_ns = std::max(longest_ns, end_ns - begin_ns);
    load.drained(begin_ns, end_ns);
  }
  bool behind_within(double cost, int ticks) {
    for (int i = 0; i < ticks && !load.behind(); ++i) tick(cost);
    return load.behind();
  }
};

TEST(PmLoad, IsBehindBeforeAnImageIsFull) {
  for (const int64_t image_ms : {100, 200}) {
    for (const double cost : {1.1, 1.2, 1.35, 1.6}) {
      Drains drains(image_ms * kMs);
      EXPECT_TRUE(drains.behind_within(cost, 100)) << image_ms << " " << cost;
      EXPECT_GT(drains.longest_ns, image_ms * kMs / 2) << "a burst is ridden out";
      EXPECT_LT(drains.longest_ns, image_ms * kMs) << image_ms << " " << cost;
    }
  }
}

// Two to three times as long as what is decoded: the third drain would find an image full.
TEST(PmLoad, IsBehindSoonerWhereDecodingIsMuchTooSlow) {
  for (const auto& [image_ms, cost] : {std::pair(100, 2.0), std::pair(200, 2.5), std::pair(200, 3.0)}) {
    Drains drains(image_ms * kMs);
    EXPECT_TRUE(drains.behind_within(cost, 100)) << image_ms << " " << cost;
    EXPECT_LT(drains.longest_ns, image_ms * kMs) << image_ms << " " << cost;
  }
}

TEST(PmLoad, IsNotBehindWhereDecodingKeepsUp) {
  Drains drains(200 * kMs);
  EXPECT_FALSE(drains.behind_within(0.97, 1000));
}

TEST(PmLoad, IsNotBehindAfterItWasKeptFromRunning) {
  Drains drains(200 * kMs);
  for (int i = 0; i < 10; ++i) drains.tick(0.9);
  drains.tick(0.9, 250 * kMs);
  EXPECT_GT(drains.longest_ns, 200 * kMs);
  for (int i = 0; i < 50; ++i) {
    EXPECT_FALSE(drains.load.behind()) << i;
    drains.tick(0.9);
  }
}

TEST(PmLoad, AShortBurstIsNoReason) {
  Drains drains(200 * kMs);
  EXPECT_FALSE(drains.behind_within(1.2, 6));
  EXPECT_FALSE(drains.behind_within(0.6, 50));
}

TEST(PmLoad, TheCoreOfDeepModeHoldsWhatFlopsAreCountedWith) {
  PmMetricSet set;
  size_t rest = 0;
  for (const PmCandidate& candidate : pm_candidates(PmFocus::kOperations))
    set.metrics.push_back({candidate.column, candidate.metrics.front(), candidate.scale, candidate.total});
  const size_t core = core_size(set);
  ASSERT_LT(core, set.metrics.size());
  for (size_t i = core; i < set.metrics.size(); ++i) {
    const std::string column = set.metrics[i].column;
    EXPECT_EQ(column.rfind("fma_", 0), std::string::npos) << column;
    EXPECT_TRUE(column != "tensor_active_frac" && column != "sm_clock_hz") << column;
    rest += column == "l2_hit_frac" ? 1 : 0;
  }
  EXPECT_EQ(rest, 1U);
}

}  // namespace
}  // namespace llmprof::samplers
