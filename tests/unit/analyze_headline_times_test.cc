#include <gtest/gtest.h>

#include "analyze/headline_times.h"

namespace llmprof {
namespace {

HeadlineTimes times_of(size_t count, double ms) {
  HeadlineTimes out;
  out.ms.assign(count, ms);
  out.unsure_ms.assign(count, 0);
  return out;
}

// So many unrecorded, replayed and recorded ones, of 1, 2 and 3 ms.
HeadlineTimes chosen(size_t unrecorded, size_t replayed, size_t recorded) {
  TimesBySource by_source;
  by_source[static_cast<size_t>(StepTimeSource::kUnrecorded)] = times_of(unrecorded, 1);
  by_source[static_cast<size_t>(StepTimeSource::kReplayed)] = times_of(replayed, 2);
  by_source[static_cast<size_t>(StepTimeSource::kRecorded)] = times_of(recorded, 3);
  return choose_times(by_source, 5);
}

TEST(HeadlineTimes, UnrecordedOnesComeFirst) {
  const HeadlineTimes times = chosen(5, 40, 40);
  EXPECT_EQ(times.source, StepTimeSource::kUnrecorded);
  EXPECT_EQ(times.ms, std::vector<double>(5, 1));
}

TEST(HeadlineTimes, TooFewUnrecordedOnesStandWithReplayedOnes) {
  const HeadlineTimes times = chosen(2, 3, 0);
  EXPECT_EQ(times.source, StepTimeSource::kReplayed);
  EXPECT_EQ(times.ms, (std::vector<double>{1, 1, 2, 2, 2}));
  EXPECT_EQ(times.unsure_ms.size(), 5U);
}

// Two of sixty-six that replay gives back say little of the others.
TEST(HeadlineTimes, AFewReplayedOnesOfManyDoNotStandForThem) {
  HeadlineTimes times = chosen(0, 2, 64);
  EXPECT_EQ(times.source, StepTimeSource::kRecorded);
  EXPECT_EQ(times.ms, std::vector<double>(64, 3));
  times = chosen(0, 33, 33);
  EXPECT_EQ(times.source, StepTimeSource::kReplayed);
  EXPECT_EQ(times.ms, std::vector<double>(33, 2));
}

TEST(HeadlineTimes, WithoutAnyOthersAFewUnrecordedOnesDo) {
  const HeadlineTimes times = chosen(2, 0, 0);
  EXPECT_EQ(times.source, StepTimeSource::kUnrecorded);
  EXPECT_EQ(times.ms.size(), 2U);
  EXPECT_EQ(chosen(0, 0, 4).source, StepTimeSource::kRecorded);
}

}  // namespace
}  // namespace llmprof
