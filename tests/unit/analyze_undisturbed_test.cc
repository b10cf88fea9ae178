// Step times without the recorder: which steps they come from.
#include <gtest/gtest.h>

#include <cmath>

#include "analyze/undisturbed.h"
#include "analyze_recording.h"

namespace llmprof {
namespace {

// Kernels were recorded up to `middle`, nothing after it.
void recorded_until(AnalyzedRecording& run, int64_t middle, int64_t end, std::string_view reason) {
  TraceBuilder builder(run.trace);
  builder.add<Recorded>({.start_ns = 0, .dur_ns = middle, .process_id = 0, .level = RecordingLevel::kDefault});
  builder.add<Recorded>({.start_ns = middle,
                         .dur_ns = end - middle,
                         .process_id = 0,
                         .level = RecordingLevel::kLight,
                         .reason = run.trace.strings.intern(reason)});
  run.window(0, end);
}

// Decode steps of `recorded_ns`, then such of which nothing was recorded, `unrecorded_ns` each; CUPTI left before them
// if `left`. `later`: so many more of them that take a tenth less.
AnalyzedRecording recording(int recorded, int64_t recorded_ns, int unrecorded, int64_t unrecorded_ns, bool left,
                            int later = 0) {
  AnalyzedRecording run;
  int64_t at = 0;
  const auto add = [&](bool is_recorded, int64_t length) {
    const StepId step = run.step(StageKind::kDecode, at, at + length, 1, 100, "decode_step");
    run.trace.steps.missing[step] = is_recorded ? MissingKernels::kNone : MissingKernels::kAll;
    run.trace.steps.state[step] = is_recorded ? StepState::kUsual : StepState::kNotRecorded;
    at += length;
  };
  for (int i = 0; i < recorded; ++i) add(true, recorded_ns + i * 100);
  const int64_t middle = at;
  for (int i = 0; i < unrecorded; ++i) add(false, unrecorded_ns + i * 100);
  for (int i = 0; i < later; ++i) add(false, unrecorded_ns * 9 / 10);
  recorded_until(run, middle, at, left ? "detached" : "unrecorded");
  return run;
}

RecorderCosts some_costs() {
  RecorderCosts costs;
  costs["launch_512k"] = {4'000, 8'000, 6'000, 0, 2'000};
  costs["graph_32"] = costs["graph_256"] = {2'000, 3'000, 3'000, 0, 0};
  costs["gpu_kernel"] = costs["gpu_node"] = {800, 1'000, 0, 0, 0};
  return costs;
}

// What a replay would say of the recorded steps.
std::vector<replay::StepTime> replayed(const Trace& trace, double without_frac, double error_frac = 0) {
  std::vector<replay::StepTime> out;
  for (Row s = 0; s < trace.steps.size(); ++s) {
    if (trace.steps.missing[s] != MissingKernels::kNone) continue;
    const int64_t window = trace.steps.end_ns[s] - trace.steps.start_ns[s];
    replay::StepTime time;
    time.step = s;
    time.recorded_ns = window;
    time.replayed_ns = std::llround(static_cast<double>(window) * (1 + error_frac));
    time.undisturbed_ns = std::llround(static_cast<double>(window) * without_frac);
    out.push_back(time);
  }
  return out;
}

UndisturbedTimes times(const AnalyzedRecording& run, const std::vector<replay::StepTime>& replay,
                       const RecorderCosts& costs) {
  return UndisturbedTimes(run.trace, group_trace(run.trace), {replay, {}}, costs, HostPace(run.trace));
}

TEST(UndisturbedTimes, UnrecordedStepsComeFirst) {
  const AnalyzedRecording run = recording(20, 1200'000, 20, 1000'000, true);
  const UndisturbedTimes found = times(run, replayed(run.trace, 0.85), some_costs());
  ASSERT_EQ(found.rows().size(), 1U);
  const UndisturbedRecord& row = found.rows()[0];
  EXPECT_EQ(row.source, StepTimeSource::kUnrecorded);
  EXPECT_NEAR(row.step_ms, 1.001, 0.001);
  EXPECT_EQ(row.unrecorded_steps, 19) << "the first follows a recorded one";
  EXPECT_EQ(row.replayed_steps, 20);
  ASSERT_TRUE(row.agree_frac.has_value());
  EXPECT_NEAR(*row.agree_frac, 0.85 * 1.20095 / 1.001 - 1, 0.002);
  EXPECT_LE(row.ci95_low_ms, row.step_ms);
  EXPECT_GE(row.ci95_high_ms, row.step_ms);
}

// A program that becomes faster after a window: what was recorded is held against what came next, not what came later.
TEST(UndisturbedTimes, ReplayedStepsAreHeldAgainstThoseNextToThem) {
  const AnalyzedRecording run = recording(20, 1200'000, 12, 1020'000, true, 60);
  const UndisturbedTimes found = times(run, replayed(run.trace, 0.85), some_costs());
  const UndisturbedRecord& row = found.rows()[0];
  EXPECT_NEAR(*row.unrecorded_ms, 0.918, 0.001);
  EXPECT_NEAR(*row.replayed_ms, 1.0208, 0.001);
  ASSERT_TRUE(row.agree_frac.has_value());
  EXPECT_NEAR(*row.agree_frac, 0, 0.002);
}

TEST(UndisturbedTimes, ElseRecordedOnesAreReplayed) {
  const AnalyzedRecording run = recording(20, 1200'000, 20, 1100'000, false);
  const UndisturbedTimes found = times(run, replayed(run.trace, 0.85), some_costs());
  ASSERT_EQ(found.rows().size(), 1U);
  const UndisturbedRecord& row = found.rows()[0];
  EXPECT_EQ(row.source, StepTimeSource::kReplayed);
  EXPECT_NEAR(row.step_ms, 0.85 * 1.20095, 0.001);
  EXPECT_EQ(row.unrecorded_steps, 0) << "CUPTI never left";
  EXPECT_FALSE(found.window_ns(25).has_value()) << "neither alone nor replayed";
  EXPECT_DOUBLE_EQ(*found.window_ns(0), 0.85 * 1200'000);
  // The cost of a launch was 4 us, give or take 1, there; in another program it differs by more.
  EXPECT_LE(row.ci95_low_ms, row.step_ms - 0.4 * 0.15 * 1.2);
  EXPECT_NEAR(found.unsure_ns(0), 0.4 * 0.15 * 1200'000, 1);
  EXPECT_EQ(times(run, {}, {}).unsure_ns(0), 0) << "nothing was taken out";
}

TEST(UndisturbedTimes, ElseTheyAreAsRecorded) {
  const AnalyzedRecording run = recording(20, 1200'000, 20, 1100'000, false);
  const UndisturbedTimes found = times(run, {}, {});
  ASSERT_EQ(found.rows().size(), 1U);
  EXPECT_EQ(found.rows()[0].source, StepTimeSource::kRecorded);
  EXPECT_NEAR(found.rows()[0].step_ms, 1.20095, 0.001);
  EXPECT_EQ(*found.window_ns(3), 1200'300);
}

TEST(UndisturbedTimes, AReplayThatMissesTheStepSaysNothing) {
  const AnalyzedRecording run = recording(20, 1200'000, 0, 0, false);
  const UndisturbedTimes found = times(run, replayed(run.trace, 0.85, 0.08), some_costs());
  EXPECT_EQ(found.rows()[0].source, StepTimeSource::kRecorded);
}

// The host prepares a prompt, which is a step without any GPU work: it stands neither between equals nor in the way.
TEST(UndisturbedTimes, AStageOfTheHostAloneIsPassedOver) {
  AnalyzedRecording run;
  int64_t at = 0;
  const auto request = [&](bool is_recorded) {
    run.step(StageKind::kVision, at, at + kMs, -1, -1, "preprocess");
    const StepId prefill = run.step(StageKind::kPrefill, at + kMs, at + 3 * kMs, 64, 64, "prefill");
    run.trace.steps.missing[prefill] = is_recorded ? MissingKernels::kNone : MissingKernels::kAll;
    if (!is_recorded) run.trace.steps.state[prefill] = StepState::kNotRecorded;
    if (is_recorded) run.gpu("gemm", Category::kGemm, at + kMs, kMs, {prefill, kNoRow, kNoRow, kNoRow});
    at += 3 * kMs;
  };
  for (int i = 0; i < 6; ++i) request(true);
  const int64_t middle = at;
  for (int i = 0; i < 7; ++i) request(false);
  recorded_until(run, middle, at, "detached");
  const UndisturbedTimes found = times(run, {}, {});
  ASSERT_EQ(found.rows().size(), 1U) << "there is nothing to take out of what the host does alone";
  EXPECT_EQ(found.rows()[0].stage, "prefill");
  EXPECT_EQ(found.rows()[0].recorded_steps, 6);
  EXPECT_EQ(found.rows()[0].unrecorded_steps, 6) << "but the first, which follows a recorded one";
  EXPECT_EQ(found.source(StepId(0)), StepTimeSource::kReplayed);
  EXPECT_EQ(found.source(StepId(24)), StepTimeSource::kUnrecorded);
  EXPECT_EQ(*found.window_ns(StepId(24)), kMs);
  const std::vector<StageTimes> stages = stage_times(run.trace, HostPace(run.trace));
  for (const StageTimes& stage : stages)
    EXPECT_EQ(times_ns(stage.steps, false).size(), stage.stage == "prefill" ? 6U : 0U);
}

// A range around an encoder and its prompt is two steps where it is recorded, and one where it is not.
TEST(UndisturbedTimes, StepsOfOneRangeAreOneTime) {
  AnalyzedRecording run;
  int64_t at = 0;
  AnnotationId range = 0;
  const auto add = [&](StageKind kind, int64_t length, MissingKernels missing) {
    const StepId step = run.step(kind, at, at + length, 64, 64, "encode and start");
    run.trace.steps.annotation[step] = range;
    run.trace.steps.missing[step] = missing;
    if (missing != MissingKernels::kNone) run.trace.steps.state[step] = StepState::kNotRecorded;
    if (missing == MissingKernels::kNone) run.gpu("gemm", Category::kGemm, at, 1000, {step, kNoRow, kNoRow, kNoRow});
    at += length;
  };
  for (; range < 6; ++range) {
    add(StageKind::kVision, 7 * kMs, MissingKernels::kNone);
    add(StageKind::kPrefill, 6 * kMs, MissingKernels::kNone);
  }
  const int64_t middle = at;
  for (; range < 13; ++range) add(StageKind::kPrefill, 11 * kMs, MissingKernels::kAll);
  recorded_until(run, middle, at, "detached");
  const UndisturbedTimes found = times(run, {}, {});
  ASSERT_EQ(found.rows().size(), 1U);
  EXPECT_EQ(found.rows()[0].recorded_steps, 6);
  EXPECT_DOUBLE_EQ(*found.rows()[0].recorded_ms, 13);
  EXPECT_DOUBLE_EQ(found.rows()[0].step_ms, 11);
  EXPECT_DOUBLE_EQ(*found.window_ns(StepId(0)) + *found.window_ns(StepId(1)), 11 * kMs) << "scaled together";
}

// Pieces of a range whose unrecorded steps were found one by one are steps like any others.
TEST(UndisturbedTimes, PiecesOfARangeAreStepsWhereUnrecordedOnesAre) {
  AnalyzedRecording run;
  int64_t at = 0;
  const auto add = [&](int64_t length, AnnotationId range, MissingKernels missing) {
    const StepId step = run.step(StageKind::kDecode, at, at + length, 1, 1, "answer decode");
    run.trace.steps.annotation[step] = range;
    run.trace.steps.missing[step] = missing;
    if (missing != MissingKernels::kNone) run.trace.steps.state[step] = StepState::kNotRecorded;
    if (missing == MissingKernels::kNone) run.gpu("gemm", Category::kGemm, at, 1000, {step, kNoRow, kNoRow, kNoRow});
    at += length;
  };
  for (int i = 0; i < 24; ++i) add(7 * kMs, AnnotationId(i / 6), MissingKernels::kNone);
  const int64_t middle = at;
  for (int i = 0; i < 24; ++i) add(6 * kMs, kNoRow, MissingKernels::kAll);
  recorded_until(run, middle, at, "detached");
  const UndisturbedTimes found = times(run, {}, {});
  ASSERT_EQ(found.rows().size(), 1U);
  EXPECT_EQ(found.rows()[0].recorded_steps, 24);
  EXPECT_DOUBLE_EQ(*found.rows()[0].recorded_ms, 7);
  EXPECT_DOUBLE_EQ(found.rows()[0].step_ms, 6);
}

// What was recorded is warm-up, and what is steady was not recorded: tables and findings say nothing of it.
TEST(UndisturbedTimes, SteadyStepsThatWereNotRecordedAreAskedFor) {
  AnalyzedRecording run = recording(12, 70 * kMs, 20, 14 * kMs, true);
  for (Row s = 0; s < 12; ++s) {
    run.gpu("gemm", Category::kGemm, run.trace.steps.start_ns[s], 1000, {StepId(s), kNoRow, kNoRow, kNoRow});
    run.trace.steps.phase[s] = StepPhase::kWarmUp;
    run.trace.steps.warm_up_cause[s] = WarmUpCause::kModuleLoading;
  }
  const auto why = [](const AnalyzedRecording& of) -> std::string {
    for (const CannotTell& row : report_of(of.trace).cannot_tell)
      if (row.question == "Where does the time of decode_step go once it is warm?") return row.why;
    return {};
  };
  EXPECT_EQ(why(run), "its 20 steady steps ran while nothing was recorded; the 12 that were recorded are warm-up");
  run.trace.steps.phase[11] = StepPhase::kServing;
  EXPECT_EQ(why(run), "") << "one was";
}

TEST(UndisturbedTimes, SlowStepsWhileWindowsWereOpenStandBesideTheOthers) {
  AnalyzedRecording run = recording(40, 12 * kMs, 40, 10 * kMs, true);
  for (Row s = 0; s < 40; ++s)
    run.gpu("gemm", Category::kGemm, run.trace.steps.start_ns[s], 1000, {StepId(s), kNoRow, kNoRow, kNoRow});
  run.trace.steps.state[0] = StepState::kWindowEdge;
  run.trace.steps.start_ns[0] -= 20 * kMs;
  const Report report = report_of(run.trace);
  ASSERT_TRUE(report.overhead && report.overhead->windows_p99_ms && report.overhead->pauses_p99_ms);
  EXPECT_GT(*report.overhead->windows_p99_ms, 20);
  EXPECT_NEAR(*report.overhead->pauses_p99_ms, 10, 0.1);
}

TEST(UndisturbedTimes, OtherRecordersHaveNoRows) {
  AnalyzedRecording run = recording(20, 1200'000, 0, 0, false);
  run.trace.recorded.resize(0);
  EXPECT_TRUE(times(run, {}, {}).rows().empty());
}

TEST(UndisturbedTimes, WhereNothingTellsTheReportAsks) {
  const auto asked = [](const AnalyzedRecording& run) {
    for (const CannotTell& row : report_of(run.trace).cannot_tell)
      if (row.question == "What is TPOT without the recorder?") return true;
    return false;
  };
  AnalyzedRecording whole = recording(20, 1200'000, 0, 0, false);
  for (Row s = 0; s < 20; ++s)
    whole.gpu("gemm", Category::kGemm, whole.trace.steps.start_ns[s], 1000, {StepId(s), kNoRow, kNoRow, kNoRow});
  EXPECT_TRUE(asked(whole));
  AnalyzedRecording left = recording(20, 1200'000, 20, 1000'000, true);
  for (Row s = 0; s < 20; ++s)
    left.gpu("gemm", Category::kGemm, left.trace.steps.start_ns[s], 1000, {StepId(s), kNoRow, kNoRow, kNoRow});
  EXPECT_FALSE(asked(left));
}

// Prompts that nothing names are known only as recorded: their TTFT is not of a run that went at another pace.
TEST(UndisturbedTimes, PromptsOfAnotherPaceAreSaidToBe) {
  const auto asked = [](int64_t recorded_ns, int64_t unrecorded_ns) {
    AnalyzedRecording run = recording(20, recorded_ns, 20, unrecorded_ns, true);
    for (Row s = 0; s < 4; ++s) {
      run.trace.steps.kind[s] = StageKind::kPrefill;
      run.trace.steps.stage[s] = run.trace.strings.intern("prefill");
    }
    for (Row s = 0; s < 20; ++s)
      run.gpu("gemm", Category::kGemm, run.trace.steps.start_ns[s], 1000, {StepId(s), kNoRow, kNoRow, kNoRow});
    std::string why;
    for (const CannotTell& row : report_of(run.trace).cannot_tell)
      if (row.question == "Is TTFT that of the whole run?") why = row.why;
    return why;
  };
  EXPECT_EQ(asked(1020'000, 1000'000), "");
  const std::string why = asked(1500'000, 1000'000);
  EXPECT_NE(why.find("prompts are known, all recorded; at that time a step of decode_step took 1.5 ms, in the "
                     "unrecorded part of the run 1 ms"),
            std::string::npos)
      << why;
}

// A program whose recorded steps take 10 ms, 8 of them idle while the host launches, and its unrecorded ones so long.
AnalyzedRecording launches_slowed_to(int64_t alone_ns) {
  AnalyzedRecording run = eager_run();
  int64_t at = 45 * kMs;
  for (int i = 0; i < 9; ++i, at += alone_ns) {
    const StepId step = run.step(StageKind::kDecode, at, at + alone_ns, 1, 600);
    run.trace.steps.missing[step] = MissingKernels::kAll;
    run.trace.steps.state[step] = StepState::kNotRecorded;
    run.gap(IdleCause::kNotRecorded, at, alone_ns, step);
  }
  run.trace.windows[0].end_ns = at;
  TraceBuilder builder(run.trace);
  builder.add<Recorded>({.start_ns = 0, .dur_ns = 45 * kMs, .process_id = 0, .level = RecordingLevel::kDefault});
  builder.add<Recorded>({.start_ns = 45 * kMs,
                         .dur_ns = at - 45 * kMs,
                         .process_id = 0,
                         .level = RecordingLevel::kLight,
                         .reason = run.trace.strings.intern("detached")});
  return run;
}

// Half of the headline's line per stage: how busy, how far from the limit, and what holds it up.
TEST(UndisturbedTimes, RatesAndBoundsAreThoseWithoutTheRecorder) {
  const auto decode = [](const Report& report) {
    for (const StageTiming& stage : report.stages)
      if (stage.name == "decode") return stage;
    return StageTiming();
  };
  const StageTiming slow = decode(report_of(launches_slowed_to(10 * kMs).trace));
  const StageTiming alone = decode(report_of(launches_slowed_to(5 * kMs / 2).trace));
  ASSERT_TRUE(slow.own_ms && alone.own_ms && slow.mfu && alone.mfu && slow.mbu && alone.mbu);
  EXPECT_EQ(slow.wall_ms.ns, 30 * kMs);
  EXPECT_EQ(alone.wall_ms.ns, 30 * kMs) << "as recorded: with busy and idle time it adds up";
  EXPECT_DOUBLE_EQ(*slow.own_ms, 30);
  EXPECT_DOUBLE_EQ(*alone.own_ms, 7.5);
  EXPECT_NEAR(*slow.gpu_busy_frac, 0.2, 0.001);
  EXPECT_NEAR(*alone.gpu_busy_frac, 0.8, 0.004);
  EXPECT_NEAR(*alone.mfu / *slow.mfu, 4, 0.001);
  EXPECT_NEAR(*alone.mbu / *slow.mbu, 4, 0.001);
  EXPECT_EQ(slow.bound, Bound::kOverhead);
  EXPECT_NE(alone.bound, Bound::kOverhead);
  // Of the 8 ms of idle time in a step 4 are known to be the profiler's: they are part of what recording costs.
  AnalyzedRecording profiled = launches_slowed_to(6 * kMs);
  Gaps& gaps = profiled.trace.gaps;
  for (Row gap = 0; gap < gaps.size(); gap += 2)
    if (gaps.cause[gap] == IdleCause::kLaunchCall || gaps.cause[gap] == IdleCause::kOperatorDispatch)
      gaps.cause[gap] = IdleCause::kProfiler;
  const StageTiming half = decode(report_of(profiled.trace));
  const StageTiming whole = decode(report_of(launches_slowed_to(6 * kMs).trace));
  EXPECT_DOUBLE_EQ(*half.own_ms, 18);
  EXPECT_EQ(half.bound, whole.bound);
  EXPECT_NEAR(*half.bound_frac, *whole.bound_frac, 0.01) << "not taken out twice";
}

TEST(UndisturbedTimes, IdleTimeThatRecordingCostIsNoFinding) {
  const Report slow = report_of(launches_slowed_to(9 * kMs).trace);
  const Finding* found = finding_of(slow, "launch-bound", "decode");
  ASSERT_NE(found, nullptr);
  EXPECT_NE(found->title.find("waits 70.0 %"), std::string::npos) << found->title;
  const Report fast = report_of(launches_slowed_to(2 * kMs + 100 * kUs).trace);
  EXPECT_EQ(finding_of(fast, "launch-bound", "decode"), nullptr);
  EXPECT_EQ(finding_of(fast, "cpu-bound-gap", "decode"), nullptr);
  for (const Report* report : {&slow, &fast})
    for (const ConservationCheck& check : report->conservation) EXPECT_TRUE(check.ok) << check.name;
}

}  // namespace
}  // namespace llmprof
