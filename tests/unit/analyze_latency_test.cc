#include <gtest/gtest.h>

#include <cmath>

#include "analyze_live_copy.h"
#include "analyze_recording.h"

namespace llmprof {
namespace {

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
  EXPECT_DOUBLE_EQ(*latency.headline.output_tokens_per_s, 100);  // one token in 10 ms
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
    run.step(StageKind::kVision, 0, 4 * kMs, -1, -1, "vision");
    run.step(StageKind::kPrefill, 5 * kMs, 12 * kMs, 600, 600, "prefill");
    run.step(StageKind::kDecode, 12 * kMs, 14 * kMs, 1, 601, "decode");
    run.step(StageKind::kVision, 20 * kMs, 24 * kMs, -1, -1, "vision");
    run.step(StageKind::kPrefill, 25 * kMs, 35 * kMs, 600, 600, "prefill");
    run.step(StageKind::kDecode, 35 * kMs, 37 * kMs, 1, 601, "decode");
    run.step(StageKind::kVision, 40 * kMs, 44 * kMs, -1, -1, "vision");
    run.step(StageKind::kPrefill, 45 * kMs, 54 * kMs, 600, 600, "prefill");
    if (edge) run.trace.steps.state[0] = run.trace.steps.state[4] = StepState::kWindowEdge;
    const Latency latency = latency_of(run);
    EXPECT_EQ(latency.ttft_ms->n, edge ? 1 : 3);
    EXPECT_DOUBLE_EQ(latency.ttft_ms->max, edge ? 14 : 15);
    ASSERT_TRUE(latency.tpot_ms);  // requests can still be explained apart
    EXPECT_EQ(latency.tpot_ms->n, 2);
  }
}

TEST(Latency, SaysWhyTheRateIsUnknown) {
  AnalyzedRecording run;
  run.window(0, 20 * kMs);
  run.step(StageKind::kPrefill, 0, 10 * kMs, 600, 600);
  const Row decode = run.step(StageKind::kDecode, 10 * kMs, 20 * kMs, 1, 601);
  run.trace.steps.output_tokens[decode] = -1;
  const Result<Report> report = analyze(run.trace);
  ASSERT_TRUE(report);
  EXPECT_FALSE(report->latency->headline.output_tokens_per_s);
  for (const CannotTell& row : report->cannot_tell) {
    if (row.question != "How many tokens per second come out?") continue;
    EXPECT_EQ(row.why, "how many tokens 1 of the 1 steps made is unknown");
    EXPECT_EQ(row.how_to_find_out.find("--batch"), std::string::npos) << "an option without effect on it";
    return;
  }
  FAIL() << "not told";
}

// Prompts of 30 ms and steps of 4 ms; the first request of `cold` times as much, its first steps of 500 ms.
AnalyzedRecording requests(int64_t count, int64_t steps, int64_t cold, int64_t cold_steps) {
  AnalyzedRecording run;
  int64_t at = 0, context = 100;
  const auto add = [&](StageKind kind, int64_t ns, int64_t tokens) {
    run.step(kind, at, at + ns, tokens, context++);
    at += ns;
  };
  for (int64_t r = 0; r < count; ++r) {
    add(StageKind::kPrefill, (r == 0 ? cold : 1) * 30 * kMs, 100);
    for (int64_t s = 0; s < steps; ++s) add(StageKind::kDecode, r == 0 && s < cold_steps ? 500 * kMs : 4 * kMs, 1);
  }
  run.window(0, at);
  find_steady(run.trace);
  return run;
}

TEST(Latency, TheHeadlineIsTheMedianAndTheFirstRequestStandsBesideIt) {
  AnalyzedRecording run = requests(5, 4, 20, 2);
  const Headline headline = latency_of(run).headline;
  EXPECT_DOUBLE_EQ(*headline.ttft_ms, 30);
  EXPECT_EQ(headline.ttft_n, 4);
  EXPECT_DOUBLE_EQ(*headline.first_ttft_ms, 600);
  EXPECT_DOUBLE_EQ(*headline.tpot_ms, 4);
  EXPECT_EQ(headline.itl_n, 18) << "of the first request two steps are steady";
  EXPECT_EQ(headline.first_ttft_cold, true);
  EXPECT_DOUBLE_EQ(*headline.first_itl_ms, 500);
  EXPECT_DOUBLE_EQ(*headline.output_tokens_per_s, 250);
}

// Other steps of the same run would give another median: how far off, says the interval.
TEST(Latency, FiguresHaveTheIntervalOfTheirMedian) {
  AnalyzedRecording run = requests(5, 4, 20, 2);
  const Headline even = latency_of(run).headline;
  EXPECT_DOUBLE_EQ(*even.itl_ci95_low_ms, 4);
  EXPECT_DOUBLE_EQ(*even.itl_ci95_high_ms, 4);
  int late = 0;
  for (Row s = 0; s < run.trace.steps.size(); ++s)
    if (run.trace.steps.kind[s] == StageKind::kDecode && ++late % 2 == 0) run.trace.steps.end_ns[s] += 1'000'000;
  const Headline uneven = latency_of(run).headline;
  EXPECT_DOUBLE_EQ(*uneven.itl_ci95_low_ms, 4);
  EXPECT_DOUBLE_EQ(*uneven.itl_ci95_high_ms, 5);
  AnalyzedRecording few = requests(1, 4, 1, 0);
  ASSERT_TRUE(latency_of(few).headline.ttft_ms);
  EXPECT_FALSE(latency_of(few).headline.ttft_ci95_low_ms) << "one prompt says nothing of others";
}

TEST(Latency, ThreeColdStepsOfOneRequestDoNotMoveTheHeadline) {
  AnalyzedRecording run = requests(1, 1503, 1, 3);
  const Latency latency = latency_of(run);
  EXPECT_DOUBLE_EQ(latency.tpot_ms->mean, 4) << "warm-up is in no distribution";
  EXPECT_EQ(latency.itl_ms->n, 1500);
  EXPECT_DOUBLE_EQ(*latency.headline.tpot_ms, 4);
  EXPECT_DOUBLE_EQ(*latency.headline.ttft_ms, 30);
  EXPECT_EQ(latency.headline.ttft_n, 1);
  EXPECT_DOUBLE_EQ(*latency.headline.first_ttft_ms, 30) << "the only request is the first one";
  EXPECT_DOUBLE_EQ(*latency.headline.output_tokens_per_s, 250);
}

// A server that runs one prompt between steps of many: its steps' tokens over their own time were 3.2 times its rate.
TEST(Latency, NoRateOfStepsBetweenWhichOthersPromptsRun) {
  AnalyzedRecording run = requests(5, 4, 1, 0);
  ASSERT_TRUE(latency_of(run).headline.output_tokens_per_s);
  for (Row s = 0; s < run.trace.steps.size(); ++s) {
    if (run.trace.steps.kind[s] != StageKind::kDecode) continue;
    run.trace.steps.sequences[s] = run.trace.steps.output_tokens[s] = 16;
  }
  const Result<Report> report = analyze(run.trace);
  const Headline& headline = report->latency->headline;
  EXPECT_FALSE(headline.output_tokens_per_s);
  EXPECT_FALSE(headline.tpot_ms) << "a request waits for the prompts of others";
  EXPECT_DOUBLE_EQ(*headline.itl_ms, 4);
  bool explained = false;
  for (const CannotTell& row : report->cannot_tell)
    explained |= row.question.starts_with("How many tokens per second") && row.why.starts_with("prompts run between");
  EXPECT_TRUE(explained);
}

TEST(Latency, TimeBeforeAFoundPromptIsToldBesideTtft) {
  AnalyzedRecording run;
  int64_t at = 0;
  const auto add = [&](StageKind kind, int64_t ns, int64_t tokens, int64_t pause) {
    at += pause;
    run.step(kind, at, at + ns, tokens, 100);
    at += ns;
  };
  for (int r = 0; r < 3; ++r) {
    add(StageKind::kPrefill, 4 * kMs, 100, r == 0 ? 0 : 47 * kMs);
    for (int s = 0; s < 3; ++s) add(StageKind::kDecode, 2 * kMs, 1, 0);
  }
  run.window(0, at);
  const Headline headline = latency_of(run).headline;
  EXPECT_DOUBLE_EQ(*headline.ttft_ms, 4);
  EXPECT_DOUBLE_EQ(*headline.before_prompt_ms, 47);
  // The program knows best where its prompts begin.
  for (StageSource& source : run.trace.steps.source) source = StageSource::kAnnotation;
  EXPECT_FALSE(latency_of(run).headline.before_prompt_ms);
}

TEST(Latency, AnotherModelsPassBeforePromptsIsToldBesideTtft) {
  for (const size_t judged : {2U, 1U}) {  // of three
    AnalyzedRecording run;
    int64_t at = 0;
    for (size_t r = 0; r < 3; ++r) {
      run.step(StageKind::kPrefill, at, at + 4 * kMs, 100, 100);
      run.trace.steps.other_model_ns.back() = r < judged ? kMs : 0;
      run.step(StageKind::kDecode, at + 4 * kMs, at + 6 * kMs, 1, 100);
      at += 6 * kMs;
    }
    run.window(0, at);
    const Headline headline = latency_of(run).headline;
    EXPECT_DOUBLE_EQ(*headline.ttft_ms, 4) << "nobody knows whether the answer needs it";
    EXPECT_DOUBLE_EQ(headline.ttft_other_model_frac.value_or(0), judged == 2 ? 0.25 : 0);
  }
}

// What a step is for stands in columns: words that the program puts into the names of its ranges mean nothing.
TEST(Latency, ARangeThatIsCalledWarmUpOrWindowEdgeIsAnOrdinaryStage) {
  for (const char* suffix : {" [warm-up]", " [window edge]", " [not recorded]", " [whole graphs]"}) {
    AnalyzedRecording run;
    run.window(0, 60 * kMs);
    run.step(StageKind::kPrefill, 0, 10 * kMs, 600, 600, std::string("prefill") + suffix);
    run.step(StageKind::kDecode, 10 * kMs, 12 * kMs, 1, 601, std::string("x") + suffix);
    run.step(StageKind::kDecode, 12 * kMs, 14 * kMs, 1, 602, std::string("x") + suffix);
    const Report report = report_of(run);
    ASSERT_TRUE(report.latency && report.latency->tpot_ms) << suffix;
    EXPECT_DOUBLE_EQ(report.latency->ttft_ms->mean, 10) << suffix;
    EXPECT_DOUBLE_EQ(report.latency->tpot_ms->mean, 2) << suffix;
    ASSERT_NE(stage_of(report, std::string("x") + suffix), nullptr);
    EXPECT_FALSE(report.mark_of(report.stages[1]).is_warm_up()) << suffix;
  }
}

// What a window edge hides is not replaced by what came after it.
TEST(Latency, ALaterRequestIsNoFirstOne) {
  AnalyzedRecording run = requests(3, 4, 20, 2);
  run.trace.steps.state[0] = run.trace.steps.state[1] = StepState::kWindowEdge;
  find_steady(run.trace);
  const Headline headline = latency_of(run).headline;
  EXPECT_DOUBLE_EQ(*headline.ttft_ms, 30);
  EXPECT_EQ(headline.ttft_n, 2) << "both that are seen come after the first";
  EXPECT_FALSE(headline.first_ttft_ms);
  EXPECT_FALSE(headline.first_itl_ms);
  EXPECT_EQ(headline.itl_n, 10) << "one of twelve at the edge, one of warm-up";
}

// Steps of 4 ms of which every fourth takes 8: a rate is what came out over the time it took.
TEST(Latency, TheRateIsTokensOverTime) {
  AnalyzedRecording run;
  int64_t at = 0;
  for (int64_t i = 0; i < 41; ++i) {
    const int64_t ns = (i % 4 == 3 ? 8 : 4) * kMs;
    run.step(StageKind::kDecode, at, at + ns, 1, 100 + i);
    at += ns;
  }
  run.window(0, at);
  const Headline headline = latency_of(run).headline;
  EXPECT_DOUBLE_EQ(*headline.tpot_ms, 4);
  EXPECT_DOUBLE_EQ(*headline.output_tokens_per_s, 41e3 / 204) << "41 tokens in 204 ms";
}

TEST(Latency, FirstCallsCountTheFirstPromptToo) {
  AnalyzedRecording run = requests(2, 4, 4, 1);
  EXPECT_DOUBLE_EQ(*latency_of(run).warmup_ms, 90 + 496) << "a TTFT of 120 ms against 30, a step of 500 against 4";
  AnalyzedRecording other = requests(2, 4, 4, 1);
  other.trace.steps.new_tokens[5] = 25;  // the second prompt is another one
  find_steady(other.trace);
  EXPECT_DOUBLE_EQ(*latency_of(other).warmup_ms, 496);
}

// A cold request is no warm one, and the report says so.
TEST(Latency, OneColdRequestHasNoWarmTtft) {
  AnalyzedRecording run;
  run.step(StageKind::kPrefill, 0, 300 * kMs, 100, 100);
  for (int64_t s = 0; s < 5; ++s) run.step(StageKind::kDecode, (300 + 4 * s) * kMs, (304 + 4 * s) * kMs, 1, 101 + s);
  run.window(0, 320 * kMs);
  run.api("cuModuleLoadData", 10 * kMs, 200 * kMs);
  find_steady(run.trace);
  const Report report = report_of(run);
  const Headline& headline = report.latency->headline;
  EXPECT_FALSE(headline.ttft_ms);
  EXPECT_FALSE(report.latency->ttft_ms);
  EXPECT_EQ(headline.ttft_n, 0);
  EXPECT_DOUBLE_EQ(*headline.first_ttft_ms, 300);
  EXPECT_EQ(headline.first_ttft_cold, true);
  EXPECT_EQ(headline.first_itl_cold, false);
  EXPECT_DOUBLE_EQ(*headline.tpot_ms, 4);
  EXPECT_DOUBLE_EQ(*report.latency->warmup_ms, 200);
  ASSERT_EQ(report.warm_up.size(), 1U);
  EXPECT_EQ(report.warm_up[0].stage, "prefill");
  EXPECT_EQ(report.warm_up[0].cause, WarmUpCause::kModuleLoading);
  EXPECT_EQ(report.warm_up[0].steady_steps, 0);
  for (const Finding& finding : report.findings) EXPECT_NE(finding.stage, "prefill [warm-up]");
  std::string why;
  for (const CannotTell& row : report.cannot_tell)
    if (row.question == "What is TTFT of a warm request?") why = row.why;
  EXPECT_EQ(why, "the only prompt is warm-up: modules were loaded");
}

// Without evidence nobody knows: told where the recording is of all that the program did.
TEST(Latency, TheOnlyRequestOfAProgramIsAskedAbout) {
  for (const bool live : {false, true}) {
    AnalyzedRecording run = requests(1, 5, 1, 0);
    run.gpu("gemm", Category::kGemm, 0, kMs, {.step = 0});
    run.busy(0, kMs);
    if (live)
      TraceBuilder(run.trace).add<Recorded>({.start_ns = 0, .dur_ns = 50 * kMs, .level = RecordingLevel::kDefault});
    const Report report = report_of(run);
    EXPECT_DOUBLE_EQ(*report.latency->headline.ttft_ms, 30);
    EXPECT_FALSE(report.latency->headline.first_ttft_cold) << "nothing tells";
    bool asked = false;
    for (const CannotTell& row : report.cannot_tell) asked |= row.question == "Is TTFT that of a warm request?";
    EXPECT_EQ(asked, live);
    EXPECT_EQ(report.latency->headline.ttft_in_doubt.value_or(false), live);
  }
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
  bool explained = false;
  for (const CannotTell& row : report->cannot_tell) explained |= row.question == "What is TTFT?";
  EXPECT_TRUE(explained);
}

// Prompts run in pieces, some of them beside tokens of others: a step on a prompt alone may be a piece too.
TEST(Latency, WherePromptsRunInPiecesOnlyAWholeOneHasATtft) {
  AnalyzedRecording run, whole;
  for (AnalyzedRecording* const one : {&run, &whole}) {
    one->window(0, 80 * kMs);
    one->step(StageKind::kPrefill, 0, 10 * kMs, 128, 128);
    one->step(StageKind::kPrefill, 10 * kMs, 19 * kMs, 90, 218);
    one->step(StageKind::kDecode, 19 * kMs, 22 * kMs, 1, 219);
    one->step(StageKind::kMixed, 22 * kMs, 33 * kMs, 128, -1);
    one->step(StageKind::kPrefill, 33 * kMs, 43 * kMs, 128, 128);
    one->step(StageKind::kMixed, 43 * kMs, 54 * kMs, 128, -1);
  }
  const Latency pieces = latency_of(run);
  EXPECT_FALSE(pieces.ttft_ms) << "two in a row, and one that goes on in a mixed step";
  EXPECT_FALSE(pieces.headline.first_ttft_ms);
  whole.step(StageKind::kPrefill, 54 * kMs, 61 * kMs, 100, 100);
  whole.step(StageKind::kDecode, 61 * kMs, 64 * kMs, 1, 101);
  const Latency one = latency_of(whole);
  ASSERT_TRUE(one.ttft_ms);
  EXPECT_EQ(one.ttft_ms->n, 1);
  EXPECT_DOUBLE_EQ(one.ttft_ms->max, 7);
}

TEST(Latency, FirstDecodeStepStandsOut) {
  AnalyzedRecording run;
  run.window(0, 60 * kMs);
  run.step(StageKind::kDecode, 0, 25 * kMs, 1, 100);
  for (int64_t s = 0; s < 3; ++s) run.step(StageKind::kDecode, (30 + 5 * s) * kMs, (35 + 5 * s) * kMs, 1, 101 + s);
  find_steady(run.trace);
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
  EXPECT_FALSE(latency.headline.output_tokens_per_s);
  EXPECT_FALSE(latency.warmup_ms);  // two steps are too few to compare
}

TEST(Latency, StepsOfSeveralRequestsHaveNone) {
  AnalyzedRecording run;
  run.window(0, 30 * kMs);
  for (int64_t s = 0; s < 3; ++s) {
    const Row row = run.step(StageKind::kOther, s * 10 * kMs, (s + 1) * 10 * kMs, 24, -1, "steps of several requests");
    run.trace.steps.source[row] = StageSource::kDetected;
    run.trace.steps.output_tokens[row] = run.trace.steps.sequences[row] = -1;
  }
  const Result<Report> report = analyze(run.trace);
  ASSERT_TRUE(report);
  EXPECT_FALSE(report->latency);
  for (const CannotTell& row : report->cannot_tell) {
    if (row.question != "What are TTFT and TPOT, and how many tokens per second come out?") continue;
    EXPECT_NE(row.why.find("3 found steps run on tokens of several requests at once (24 to 24"), std::string::npos);
    return;
  }
  FAIL() << "not told";
}

// Rounds of 20 ms: three drafts of 2 ms and their verification. Nobody knows how many tokens a round makes.
TEST(Latency, DraftsAndVerificationsMakeATimePerRoundAndNoTpot) {
  AnalyzedRecording run;
  run.window(0, 140 * kMs);
  run.step(StageKind::kPrefill, 0, 30 * kMs, 200, 200);
  for (int64_t round = 0; round < 5; ++round) {
    const int64_t start = (30 + 20 * round) * kMs;
    for (int64_t draft = 0; draft < 3; ++draft) {
      const Row step =
          run.step(StageKind::kSpeculative, start + 2 * draft * kMs, start + 2 * (draft + 1) * kMs, 1, -1, "draft");
      run.trace.steps.output_tokens[step] = 0;
    }
    const Row verify = run.step(StageKind::kSpeculative, start + 6 * kMs, start + 20 * kMs, 4, -1, "verify");
    run.trace.steps.output_tokens[verify] = -1;
  }
  run.step(StageKind::kDecode, 130 * kMs, 133 * kMs, 1, 220);  // where no drafts were made
  Result<Report> report = analyze(run.trace);
  ASSERT_TRUE(report);
  ASSERT_TRUE(report->latency);
  EXPECT_DOUBLE_EQ(report->latency->ttft_ms->mean, 30);
  EXPECT_EQ(report->latency->ttft_ms->n, 1);
  EXPECT_FALSE(report->latency->tpot_ms);
  EXPECT_FALSE(report->latency->headline.itl_ms);
  EXPECT_FALSE(report->latency->output_tokens_per_s);
  const std::vector<CannotTell>& unknown = report->cannot_tell;
  const auto tpot = std::find_if(unknown.begin(), unknown.end(), [](const CannotTell& row) {
    return row.question == "What is TPOT, and how many tokens per second come out?";
  });
  ASSERT_NE(tpot, unknown.end());
  EXPECT_NE(tpot->why.find("5 steps verify"), std::string::npos) << tpot->why;
  EXPECT_NE(tpot->why.find("takes 20 ms (median of 4, as recorded)"), std::string::npos) << tpot->why;
}

TEST(Latency, NoStepsNoLatency) {
  AnalyzedRecording run;
  run.window(0, 20 * kMs);
  Result<Report> report = analyze(run.trace);
  ASSERT_TRUE(report);
  EXPECT_FALSE(report->latency);
  EXPECT_FALSE(report->cannot_tell.empty());
}

std::string why_no_latency(const Report& report) {
  for (const CannotTell& row : report.cannot_tell)
    if (row.question == "What are TTFT and TPOT?") return row.why;
  return {};
}

// Passes over many tokens may be whole texts without a cache, drafts or embeddings where nothing says that they are
// prompts.
TEST(Latency, PassesBehindWhichNothingMakesTokensAreNoPrompts) {
  for (const std::string_view name : {"", "expert", "prefill"}) {
    AnalyzedRecording run;
    run.window(0, 40 * kMs);
    for (int i = 0; i < 4; ++i) run.step(StageKind::kPrefill, i * 10 * kMs, (i + 1) * 10 * kMs, 100 + i, 100 + i, name);
    add_level(run.trace, 0, 40 * kMs, RecordingLevel::kDefault);
    Result<Report> report = analyze(run.trace);
    ASSERT_TRUE(report);
    EXPECT_EQ(report->latency.has_value(), name == "prefill") << name;
    if (name == "prefill") continue;
    EXPECT_NE(why_no_latency(*report).find("4 passes"), std::string::npos) << why_no_latency(*report);
  }
}

// An encoder of the next frame, say: a token's time may hold it, and its step alone is not that time.
TEST(Latency, OtherPassesBeforeMostStepsMayBePartOfAToken) {
  for (const int every : {1, 4}) {
    AnalyzedRecording run;
    run.window(0, 200 * kMs);
    run.step(StageKind::kPrefill, 0, 10 * kMs, 100, 100, "");
    for (int i = 0; i < 8; ++i) {
      const int64_t at = (i + 1) * 20 * kMs;
      if (i % every == 0) run.step(StageKind::kOther, at - 8 * kMs, at, 256, 256, "");
      run.step(StageKind::kDecode, at, at + 10 * kMs, 1, 101 + i, "");
    }
    add_level(run.trace, 0, 200 * kMs, RecordingLevel::kDefault);
    Result<Report> report = analyze(run.trace);
    ASSERT_TRUE(report);
    EXPECT_EQ(report->latency.has_value(), every > 1) << every;
    if (every > 1) continue;
    EXPECT_NE(why_no_latency(*report).find("8 of 8 steps"), std::string::npos) << why_no_latency(*report);
  }
}

// A request taken for a step: the code that fetches a token does so four times in it.
TEST(Latency, StepsThatFetchSeveralTimesAreNoTokens) {
  enum Case { kTokens, kOnce, kSampler, kInModule, kNamed, kLogitsOfEach, kLogitsOnce, kCopyOfEach, kCopyOnce };
  for (const Case what :
       {kTokens, kOnce, kSampler, kInModule, kNamed, kLogitsOfEach, kLogitsOnce, kCopyOfEach, kCopyOnce}) {
    AnalyzedRecording run;
    run.window(0, 80 * kMs);
    for (int i = 0; i < 4; ++i) {
      const int64_t at = i * 20 * kMs;
      run.step(StageKind::kPrefill, at, at + 4 * kMs, 100, 100, what == kNamed ? "prefill" : "");
      const Row step =
          run.step(StageKind::kDecode, at + 4 * kMs, at + 20 * kMs, 1, 101, what == kNamed ? "decode" : "");
      const auto wait = [&](int64_t time) {
        const char* const code = what == kInModule ? "Layer.forward (serve.py:9) < [nn.Module] < generate (serve.py:30)"
                                                   : "generate (serve.py:31) < main (serve.py:50)";
        TraceBuilder(run.trace).add<HostPlaces>({.start_ns = time,
                                                 .dur_ns = kUs,
                                                 .thread = 0,
                                                 .kind = PlaceKind::kWait,
                                                 .stack = run.trace.strings.intern(code)});
      };
      for (int k = 0; k < 40; ++k) {
        const int64_t time = at + 4 * kMs + k * 300 * kUs;
        const bool last = k == 39;
        // With known shapes a token is behind logits: a fetch without them is a question that the model asks.
        WorkId work = kNoRow;
        if (what == kLogitsOfEach || what == kLogitsOnce) {
          const bool logits = last || (what == kLogitsOfEach && k % 10 == 9);
          work = run.gemm(DType::kBf16, 1, logits ? 32'000 : 4096, 4096);
        }
        run.gpu("gemm", Category::kGemm, time, 10 * kUs,
                {.step = step, .api = run.api("cudaLaunchKernel", time, 5 * kUs), .work = work});
        const bool waits = what == kOnce ? last : what == kSampler ? k >= 37 : k % 10 == 9;
        if (waits) wait(time + 20 * kUs);
        // What only waits, amid the model, fetches nothing.
        if ((what == kCopyOfEach && waits) || (what == kCopyOnce && last)) {
          run.gpu("Memcpy DtoH", Category::kCopy, time + 12 * kUs, kUs,
                  {.step = step, .api = run.api("cudaMemcpyAsync", time + 10 * kUs, 5 * kUs)});
          run.trace.gpu_ops.kind.back() = GpuOpKind::kMemcpy;
          run.trace.gpu_ops.path.back() = CopyPath::kDeviceToHost;
        }
      }
    }
    add_level(run.trace, 0, 80 * kMs, RecordingLevel::kDefault);
    Result<Report> report = analyze(run.trace);
    ASSERT_TRUE(report);
    const bool several = what == kTokens || what == kLogitsOfEach || what == kCopyOfEach;
    EXPECT_EQ(report->latency.has_value(), !several) << what;
    if (!several) continue;
    EXPECT_NE(why_no_latency(*report).find("4 times by the same code, generate (serve.py:31) < main (serve.py:50)"),
              std::string::npos)
        << why_no_latency(*report);
  }
}

// A program whose warm-up was recorded and whose CUDA graph was not: the steps known are not what it does.
TEST(Latency, NoFigureWhereACallThatRecursIsInNoStep) {
  enum Case { kUnseen, kFew, kSeen, kAsOftenAsSteps, kRecorded };
  for (const Case what : {kUnseen, kFew, kSeen, kAsOftenAsSteps, kRecorded}) {
    AnalyzedRecording run;
    run.window(0, 1000 * kMs);
    // Passes before a graph is captured are recorded, and no steps of the program.
    const int64_t until = what == kRecorded ? 600 * kMs : 400 * kMs;
    add_level(run.trace, 0, until, RecordingLevel::kDefault, 0);
    add_level(run.trace, until, 1000 * kMs, RecordingLevel::kLight, 0);
    const int steps = what == kAsOftenAsSteps ? 40 : 3;
    for (int i = 0; i < steps; ++i) {
      const int64_t at = i * 4 * kMs;
      const Row step = run.step(StageKind::kDecode, at, at + 3 * kMs, 1, 101, "decode");
      run.gpu("gemm", Category::kGemm, at + kMs, kMs, {.step = step, .api = run.api("cudaLaunchKernel", at, 5 * kUs)});
    }
    const int calls = what == kFew ? 15 : 60;
    for (int i = 0; i < calls; ++i)
      TraceBuilder(run.trace).add<RecurringCalls>({.time_ns = 500 * kMs + i * kMs, .thread = 0, .key = 7});
    if (what == kSeen) run.trace.recurring_calls.time_ns[0] = kMs;
    std::vector<CannotTell> why;
    EXPECT_EQ(latency_is_unknown(run.trace, why), what == kUnseen) << what;
    if (what != kUnseen) continue;
    ASSERT_EQ(why.size(), 1U);
    EXPECT_NE(why[0].why.find("recurs 60 times"), std::string::npos) << why[0].why;
  }
}

}  // namespace
}  // namespace llmprof
