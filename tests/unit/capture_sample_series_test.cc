// From raw counter samples to records: what is merged, dropped, lost, a gap or a pause.
#include <gtest/gtest.h>

#include <cmath>
#include <string_view>
#include <utility>
#include <vector>

#include "capture/samplers/sample_series.h"

namespace llmprof::samplers {
namespace {

std::vector<PmMetric> two_metrics() { return {{"sm_active_frac", "a", 0.01, false}, {"ctas_launched", "b", 1, true}}; }

TEST(SampleSeries, MergesMeansByTimeAndAddsCounts) {
  std::vector<spool::GpuSample> stored;
  SampleSeries series(two_metrics(), 1, [&](const spool::GpuSample& sample) { stored.push_back(sample); });
  series.set_merge(2);
  const double dropped[] = {1, 1}, low[] = {10, 5}, high[] = {40, 7};
  series.add(0, 100, dropped);
  series.add(100, 200, low);
  series.add(200, 500, high);
  series.add(500, 600, low);
  series.finish();
  ASSERT_EQ(stored.size(), 2U);
  EXPECT_EQ(stored[0].start_ns, 100);
  EXPECT_EQ(stored[0].end_ns, 500);
  EXPECT_FLOAT_EQ(stored[0].values[0], (0.10F * 100 + 0.40F * 300) / 400);
  EXPECT_FLOAT_EQ(stored[0].values[1], 12);
  EXPECT_EQ(stored[1].end_ns, 600);
  EXPECT_EQ(series.take_lost(), 0U);
}

TEST(SampleSeries, NeverMergesAcrossAGap) {
  std::vector<spool::GpuSample> stored;
  SampleSeries series(two_metrics(), 1, [&](const spool::GpuSample& sample) { stored.push_back(sample); });
  series.set_merge(4);
  const double values[] = {10, 5};
  series.add(0, 100, values);
  series.add(100, 200, values);
  series.add(600, 700, values);
  series.finish();
  ASSERT_EQ(stored.size(), 2U);
  EXPECT_EQ(stored[0].end_ns, 200);
  EXPECT_EQ(stored[1].start_ns, 600);
  EXPECT_EQ(series.take_lost(), 4U);
  EXPECT_EQ(series.take_lost(), 0U) << "counted once";
}

TEST(SampleSeries, DropsWhatCannotBeTrue) {
  size_t stored = 0;
  SampleSeries series(two_metrics(), 1, [&](const spool::GpuSample&) { ++stored; });
  const double values[] = {10, 5}, nothing[] = {NAN, INFINITY};
  series.add(0, 100, values);
  series.add(100, 200, nothing);
  series.add(200, 200, values);
  series.add(300, 250, values);
  EXPECT_EQ(stored, 0U);
  series.add(300, 400, values);
  EXPECT_EQ(stored, 1U);
}

TEST(SampleSeries, SharesFarAboveOneAreLeftOutOfAMeanAndCounted) {
  std::vector<spool::GpuSample> stored;
  SampleSeries series(two_metrics(), 1, [&](const spool::GpuSample& sample) { stored.push_back(sample); });
  series.set_merge(2);
  const double usual[] = {96, 5}, impossible[] = {14370, 7}, edge[] = {104, 200};
  series.add(0, 100, usual);
  series.add(100, 200, usual);
  series.add(200, 300, impossible);
  series.add(300, 400, edge);
  series.add(400, 500, edge);
  ASSERT_EQ(stored.size(), 2U);
  EXPECT_FLOAT_EQ(stored[0].values[0], 0.96F);
  EXPECT_FLOAT_EQ(stored[0].values[1], 12) << "a count has no such limit";
  EXPECT_FLOAT_EQ(stored[1].values[0], 1.04F) << "the edges of an interval";
  const std::vector<std::pair<std::string_view, uint64_t>> found = series.take_impossible();
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].first, "sm_active_frac");
  EXPECT_EQ(found[0].second, 1U);
  EXPECT_TRUE(series.take_impossible().empty()) << "counted once";
}

TEST(SampleSeries, AChosenGapIsNoLoss) {
  SampleSeries series(two_metrics(), 1, [](const spool::GpuSample&) {});
  const double values[] = {10, 5};
  series.add(0, 100, values);
  series.add(100, 200, values);
  series.begin_session(SampleSeries::Break::kGap);
  series.add(0, 700, values);
  EXPECT_EQ(series.take_gap_ns(), 0) << "its end is not known yet";
  series.add(700, 900, values);
  EXPECT_EQ(series.take_gap_ns(), 500);
  EXPECT_EQ(series.take_gap_ns(), 0) << "counted once";
  EXPECT_EQ(series.take_lost(), 0U);
  series.add(1300, 1500, values);
  EXPECT_EQ(series.take_lost(), 2U) << "what goes missing later is lost";
  EXPECT_EQ(series.take_gap_ns(), 0);
}

TEST(SampleSeries, ARestartCostsSamplesAndAPauseDoesNot) {
  SampleSeries series(two_metrics(), 1, [](const spool::GpuSample&) {});
  const double values[] = {10, 5};
  series.add(0, 100, values);
  series.add(100, 200, values);
  series.begin_session(SampleSeries::Break::kLoss);
  series.add(0, 300, values);
  series.add(500, 600, values);
  EXPECT_EQ(series.take_lost(), 3U);
  series.begin_session(SampleSeries::Break::kPause);
  series.add(0, 10000, values);
  series.add(20000, 20100, values);
  EXPECT_EQ(series.take_lost(), 0U);
  EXPECT_EQ(series.take_gap_ns(), 0) << "a pause is known by when sampling stopped and started";
}

}  // namespace
}  // namespace llmprof::samplers
