#include <gtest/gtest.h>

#include <cmath>

#include "analyze_recording.h"

namespace llmprof {
namespace {

constexpr int64_t kMs = 1'000'000;

Latency latency_of(AnalyzedRecording& run) {
  Result<Report> report = analyze(run.trace);
  EXPECT_TRUE(report) << report.error().text();
  EXPECT_TRUE(report->latency);
  return report->latency.value_or(Latency{});
}

TEST(Summary, OneSampleHasNoDeviation) {
  const std::optional<Summary> one = summarize({7.5});
  ASSERT_TRUE(one);
  EXPECT_EQ(one->n, 1);
  EXPECT_EQ(one->mean, 7.5);
  EXPECT_EQ(one->p99, 7.5);
  EXPECT_FALSE(one->stddev);
  EXPECT_FALSE(summarize({}));
}

TEST(Summary, PercentilesInterpolateLinearly) {
  const std::optional<Summary> s = summarize({5, 1, 4, 2, 3});
  ASSERT_TRUE(s);
  EXPECT_DOUBLE_EQ(s->p50, 3);
  EXPECT_DOUBLE_EQ(s->p90, 4.6);  // position 3.6
  EXPECT_DOUBLE_EQ(s->p99, 4.96);
  EXPECT_DOUBLE_EQ(*s->stddev, std::sqrt(2.5));  // n - 1
  EXPECT_EQ(s->min, 1);
  EXPECT_EQ(s->max, 5);
}

TEST(Latency, TtftTpotAndRate) {
  AnalyzedRecording run = eager_run();
  const Latency latency = latency_of(run);
  EXPECT_DOUBLE_EQ(latency.ttft_ms->mean, 10);
  EXPECT_EQ(latency.itl_ms->n, 3);
  EXPECT_EQ(latency.tpot_ms->n, 1);
  EXPECT_DOUBLE_EQ(latency.tpot_ms->mean, 10);
  EXPECT_DOUBLE_EQ(*latency.output_tokens_per_s, 4 / 0.040);
  EXPECT_EQ(latency.warmup_ms, 0.0);
}

TEST(Latency, ChunksOfOnePromptAreOneTtft) {
  AnalyzedRecording run;
  run.window(0, 40 * kMs);
  const Row first = run.step(StageKind::kPrefill, 0, 10 * kMs, 512, 512);
  run.trace.steps.output_tokens[first] = 0;
  run.step(StageKind::kPrefill, 10 * kMs, 15 * kMs, 100, 612);
  run.step(StageKind::kDecode, 15 * kMs, 18 * kMs, 1, 613);
  run.step(StageKind::kPrefill, 20 * kMs, 28 * kMs, 512, 512);
  run.step(StageKind::kDecode, 28 * kMs, 33 * kMs, 1, 513);
  const Latency latency = latency_of(run);
  ASSERT_EQ(latency.ttft_ms->n, 2);
  EXPECT_DOUBLE_EQ(latency.ttft_ms->max, 15);
  EXPECT_DOUBLE_EQ(latency.ttft_ms->min, 8);
  EXPECT_EQ(latency.tpot_ms->n, 2);  // one request each
  EXPECT_DOUBLE_EQ(latency.tpot_ms->mean, 4);
}

TEST(Latency, VisionBeforeThePromptBelongsToTtft) {
  AnalyzedRecording run;
  run.window(0, 30 * kMs);
  run.step(StageKind::kVision, 0, 4 * kMs);
  run.step(StageKind::kPrefill, 5 * kMs, 12 * kMs, 600, 600);
  EXPECT_DOUBLE_EQ(latency_of(run).ttft_ms->mean, 12);
}

TEST(Latency, APromptWithAPartAtAWindowEdgeHasNoTtft) {
  for (const bool edge : {false, true}) {
    AnalyzedRecording run;
    run.window(0, 60 * kMs);
    run.step(StageKind::kVision, 0, 4 * kMs, -1, -1, edge ? "vision [window edge]" : "vision");
    run.step(StageKind::kPrefill, 5 * kMs, 12 * kMs, 600, 600, "prefill");
    run.step(StageKind::kDecode, 12 * kMs, 14 * kMs, 1, 601, "decode");
    run.step(StageKind::kVision, 20 * kMs, 24 * kMs, -1, -1, "vision");
    run.step(StageKind::kPrefill, 25 * kMs, 35 * kMs, 600, 600, edge ? "prefill [window edge]" : "prefill");
    run.step(StageKind::kDecode, 35 * kMs, 37 * kMs, 1, 601, "decode");
    run.step(StageKind::kVision, 40 * kMs, 44 * kMs, -1, -1, "vision");
    run.step(StageKind::kPrefill, 45 * kMs, 54 * kMs, 600, 600, "prefill");
    const Latency latency = latency_of(run);
    EXPECT_EQ(latency.ttft_ms->n, edge ? 1 : 3);
    EXPECT_DOUBLE_EQ(latency.ttft_ms->max, edge ? 14 : 15);
    ASSERT_TRUE(latency.tpot_ms);  // requests can still be told apart
    EXPECT_EQ(latency.tpot_ms->n, 2);
  }
}

TEST(Latency, SaysWhyTheRateIsUnknown) {
  AnalyzedRecording run;
  run.window(0, 20 * kMs);
  const Row prompt = run.step(StageKind::kPrefill, 0, 10 * kMs, 600, 600);
  run.step(StageKind::kDecode, 10 * kMs, 20 * kMs, 1, 601);
  run.trace.steps.output_tokens[prompt] = -1;
  const Result<Report> report = analyze(run.trace);
  ASSERT_TRUE(report);
  EXPECT_FALSE(report->latency->output_tokens_per_s);
  for (const CannotTell& row : report->cannot_tell) {
    if (row.question != "How many tokens per second come out?") continue;
    EXPECT_EQ(row.why, "the recording does not say whether the steps of prompts ended them");
    return;
  }
  FAIL() << "not told";
}

TEST(Latency, MixedStepsGiveItlButNoTpot) {
  AnalyzedRecording run;
  run.window(0, 20 * kMs);
  run.step(StageKind::kMixed, 0, 10 * kMs, 300, 400);
  run.step(StageKind::kMixed, 10 * kMs, 20 * kMs, 300, 400);
  Result<Report> report = analyze(run.trace);
  ASSERT_TRUE(report);
  EXPECT_EQ(report->latency->itl_ms->n, 2);
  EXPECT_FALSE(report->latency->tpot_ms);
  EXPECT_FALSE(report->latency->ttft_ms);
  bool told = false;
  for (const CannotTell& row : report->cannot_tell) told |= row.question == "What is TTFT?";
  EXPECT_TRUE(told);
}

TEST(Latency, FirstDecodeStepStandsOut) {
  AnalyzedRecording run;
  run.window(0, 60 * kMs);
  run.step(StageKind::kDecode, 0, 25 * kMs, 1, 100);
  for (int64_t s = 0; s < 3; ++s) run.step(StageKind::kDecode, (30 + 5 * s) * kMs, (35 + 5 * s) * kMs, 1, 101 + s);
  Result<Report> report = analyze(run.trace);
  ASSERT_TRUE(report);
  EXPECT_DOUBLE_EQ(*report->latency->warmup_ms, 20);
  EXPECT_NE(finding_of(*report, "first-call-cost"), nullptr);
}

TEST(Latency, UnknownTokensLeaveTheRateOut) {
  AnalyzedRecording run;
  run.window(0, 20 * kMs);
  run.step(StageKind::kDecode, 0, 10 * kMs);
  run.step(StageKind::kDecode, 10 * kMs, 20 * kMs);
  const Latency latency = latency_of(run);
  EXPECT_FALSE(latency.output_tokens_per_s);
  EXPECT_FALSE(latency.warmup_ms);  // two steps are too few to compare
}

TEST(Latency, NoStepsNoLatency) {
  AnalyzedRecording run;
  run.window(0, 20 * kMs);
  Result<Report> report = analyze(run.trace);
  ASSERT_TRUE(report);
  EXPECT_FALSE(report->latency);
  EXPECT_FALSE(report->cannot_tell.empty());
}

}  // namespace
}  // namespace llmprof
