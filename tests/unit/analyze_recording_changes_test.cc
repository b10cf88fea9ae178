// What recorded calls cost in a program, by its steps with and without the recorder next to each other.
#include <gtest/gtest.h>

#include <random>

#include "analyze/recording_changes.h"
#include "analyze_recording.h"

namespace llmprof {
namespace {

// A stage whose recorded steps would take 10 ms as measured calls go, and 1 ms less if they cost twice that.
struct Stage {
  StageRuns runs;
  std::vector<double> once, twice;

  void add(bool recorded, int count, double ns, double gain_ns = 1e6) {
    if (runs.runs.empty() || runs.runs.back().recorded != recorded) runs.runs.push_back({recorded, {}});
    for (int i = 0; i < count; ++i) {
      runs.runs.back().times.push_back({StepId(static_cast<Row>(once.size()))});
      const double length = ns * (1 + 0.002 * (i % 5 - 2));
      once.push_back(length);
      twice.push_back(recorded ? length - gain_ns : length);
    }
  }
  CallsFactor factor() const { return calls_factor({runs}, once, twice); }
};

TEST(CallsFactor, IsWhatMakesReplayAgreeWithTheStepsNextToIt) {
  for (const double factor : {0.75, 1.0, 1.8}) {
    Stage stage;
    for (int i = 0; i < 6; ++i) {
      stage.add(true, 20, 10e6);
      stage.add(false, 20, 10e6 - (factor - 1) * 1e6);
    }
    const CallsFactor found = stage.factor();
    EXPECT_EQ(found.changes, 11);
    EXPECT_NEAR(found.factor, factor, 0.03);
    EXPECT_LT(found.error, 0.06);
  }
}

TEST(CallsFactor, OneChangeOnAHostOfManyPacesSaysLittle) {
  Stage steady, noisy;
  std::mt19937 generator(1);
  std::uniform_real_distribution<double> pace(0.8, 1.2);
  for (int i = 0; i < 12; ++i) steady.add(true, 10, 10e6), noisy.add(true, 10, 10e6 * pace(generator));
  steady.add(false, 20, 8e6), noisy.add(false, 20, 8e6);
  EXPECT_NEAR(steady.factor().factor, 3, 0.3);
  EXPECT_NEAR(noisy.factor().factor, 1, 0.5) << "a fifth less is what it may be without any change of recording";
  EXPECT_GT(noisy.factor().error, 3 * steady.factor().error);
  EXPECT_LT(noisy.factor().error, 0.51);
}

TEST(CallsFactor, AStepThatHardlyWaitsForCallsSaysNothing) {
  Stage stage;
  stage.add(true, 20, 10e6, 50'000);
  stage.add(false, 20, 9e6);
  EXPECT_EQ(stage.factor().changes, 0);
  EXPECT_EQ(stage.factor().factor, 1);
  Stage few;
  few.add(true, 20, 10e6);
  few.add(false, 2, 9e6);
  EXPECT_EQ(few.factor().changes, 0);
  EXPECT_EQ(calls_factor({}, {}, {}).factor, 1);
}

TEST(CallsFactor, StaysWithinReason) {
  Stage slower;  // without the recorder, of all things
  slower.add(true, 20, 10e6);
  slower.add(false, 20, 20e6);
  EXPECT_GE(slower.factor().factor, 0);
  Stage quicker;
  quicker.add(true, 20, 10e6);
  quicker.add(false, 20, 1e6);
  EXPECT_LE(quicker.factor().factor, 4);
}

// Steps of one range, an encoder and the prompt behind it, are one time where they are recorded.
TEST(StageRuns, AreByTurnsAndKeepRangesTogether) {
  AnalyzedRecording run;
  std::vector<StepRecording> recordings;
  const auto add = [&](StepRecording how, AnnotationId range) {
    const int64_t at = static_cast<int64_t>(run.trace.steps.size()) * kMs;
    run.trace.steps.annotation[run.step(StageKind::kPrefill, at, at + kMs, 8, 8, "prefill")] = range;
    recordings.push_back(how);
  };
  for (const Row range : {1, 1, 2, 2}) add(StepRecording::kRecorded, AnnotationId(range));
  add(StepRecording::kAttached, kNoRow);
  add(StepRecording::kRecorded, AnnotationId(3));
  for (int i = 0; i < 2; ++i) add(StepRecording::kAlone, kNoRow);
  std::vector<uint8_t> replays(recordings.size(), 1);
  replays[5] = 0;
  const std::vector<StageRuns> found = stage_runs(run.trace, recordings, replays, HostPace(run.trace));
  ASSERT_EQ(found.size(), 1U);
  ASSERT_EQ(found[0].runs.size(), 2U);
  EXPECT_TRUE(found[0].runs[0].recorded);
  EXPECT_EQ(found[0].runs[0].times.size(), 2U);
  EXPECT_EQ(found[0].runs[0].times[0].size(), 2U);
  EXPECT_EQ(found[0].runs[1].times.size(), 2U);
  // Medians of 3 ms and 1 ms, were there three of each.
  EXPECT_FALSE(disagreement(found[0], std::vector<double>(recordings.size(), 1e6)).has_value());
}

}  // namespace
}  // namespace llmprof
