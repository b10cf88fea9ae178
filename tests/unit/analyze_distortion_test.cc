// What recording cost: within a run, by host events, against a baseline.
#include <gtest/gtest.h>

#include "analyze_recording.h"

namespace llmprof {
namespace {

constexpr int kWarmUpSteps = 2;
constexpr size_t kDark = 1;  // row of `recorded` without recording

std::vector<double> around(double centre, size_t n) {
  std::vector<double> out;
  for (size_t i = 0; i < n; ++i) out.push_back(centre * (1 + 0.002 * (static_cast<double>(i % 7) - 3)));
  return out;
}

// A recorded warm-up of two decode steps of `warm_up_ns`, steps of `plain_ns` that were not recorded, then recorded
// ones of `recorded_ns`; a wait after each recorded one.
AnalyzedRecording two_halves(int64_t recorded_ns, int64_t plain_ns, int count = 20, int64_t warm_up_ns = 10 * kMs) {
  AnalyzedRecording run;
  run.trace.threads.process_id[0] = 1;
  int64_t at = 0;
  const auto add = [&](bool recorded, int64_t length) {
    length += (at / kMs % 5) * 1000;
    const StepId step = run.step(StageKind::kDecode, at, at + length, 1, 100, "decode_step");
    run.trace.steps.missing[step] = recorded ? MissingKernels::kNone : MissingKernels::kAll;
    run.trace.steps.state[step] = recorded ? StepState::kUsual : StepState::kNotRecorded;
    if (recorded) {
      run.trace.steps.sync_ns[step] = at + length;
      run.gpu("gemm", Category::kGemm, at, length, {step, kNoRow, kNoRow, kNoRow});
      run.busy(at, at + length);
    } else {
      run.gap(IdleCause::kNotRecorded, at, length, step);
    }
    at += length;
  };
  std::vector<int64_t> from{0};
  for (int i = 0; i < kWarmUpSteps; ++i) add(true, warm_up_ns);
  for (Row s = 0; s < run.trace.steps.size(); ++s) run.trace.steps.phase[s] = StepPhase::kWarmUp;
  from.push_back(at);
  for (int i = 0; i < count; ++i) add(false, plain_ns);
  from.push_back(at);
  for (int i = 0; i < count; ++i) add(true, recorded_ns);
  from.push_back(at);
  run.window(0, at);
  run.trace.recorded.resize(3);
  for (size_t r = 0; r < 3; ++r) {
    run.trace.recorded.start_ns[r] = from[r];
    run.trace.recorded.dur_ns[r] = from[r + 1] - from[r];
    run.trace.recorded.process_id[r] = 1;
    run.trace.recorded.level[r] = r == kDark ? RecordingLevel::kLight : RecordingLevel::kDefault;
  }
  return run;
}

TEST(Distortion, RatioOfMediansWithAnIntervalThatHoldsIt) {
  const std::optional<DistortionRecord> row = compare_step_times(around(1.05e6, 60), around(1e6, 60));
  ASSERT_TRUE(row.has_value());
  EXPECT_NEAR(row->distortion_frac, 0.05, 1e-9);
  EXPECT_LE(row->ci95_low_frac, 0.05);
  EXPECT_GE(row->ci95_high_frac, 0.05);
  EXPECT_LT(row->ci95_high_frac - row->ci95_low_frac, 0.01);
  EXPECT_EQ(row->recorded_steps, 60);
  EXPECT_NEAR(row->recorded_ms, 1.05, 1e-9);
}

TEST(Distortion, IsDeterministicAndNeedsFiveSteps) {
  const std::vector<double> a = around(1.1e6, 9), b = around(1e6, 9);
  EXPECT_EQ(compare_step_times(a, b)->ci95_low_frac, compare_step_times(a, b)->ci95_low_frac);
  EXPECT_FALSE(compare_step_times(around(1, 4), b).has_value());
  EXPECT_FALSE(compare_step_times(a, around(1, 4)).has_value());
}

TEST(Distortion, NoiseGivesAnIntervalAroundZero) {
  const std::optional<DistortionRecord> row = compare_step_times(around(1e6, 50), around(1e6, 50));
  EXPECT_LE(row->ci95_low_frac, 0);
  EXPECT_GE(row->ci95_high_frac, 0);
}

TEST(Distortion, WithinOneRun) {
  const AnalyzedRecording run = two_halves(1040'000, 1000'000);
  const Report report = report_of(run.trace);
  ASSERT_TRUE(report.overhead && report.overhead->distortion_frac);
  EXPECT_NEAR(*report.overhead->distortion_frac, 0.04, 0.005);
  EXPECT_EQ(report.overhead->method, "within-run, CUPTI attached") << "nothing says that it left";
  EXPECT_EQ(report.overhead->stage, "decode_step");
  ASSERT_EQ(report.overhead->stages.size(), 1U);
  // The first on either side follows a step of the other kind.
  EXPECT_EQ(report.overhead->stages[0].recorded_steps, 19);
  EXPECT_EQ(report.overhead->stages[0].unrecorded_steps, 19);
  EXPECT_EQ(finding_of(report, "profiler-distortion"), nullptr) << "under 5 %";
  for (const ConservationCheck& check : report.conservation) EXPECT_TRUE(check.ok) << check.name;
}

// What a program on a CPU says with its ranges, under `llmprof run`: nothing that was asked of a GPU.
TEST(Distortion, AProgramWithoutAGpuIsAskedNothingAboutOne) {
  AnalyzedRecording run(false);
  run.window(0, 20 * kMs);
  run.trace.devices.resize(0);
  TraceBuilder(run.trace).add<Recorded>({.start_ns = 0, .dur_ns = 20 * kMs, .level = RecordingLevel::kLight});
  run.step(StageKind::kVision, 0, 9 * kMs, -1, -1, "preprocess");
  run.step(StageKind::kPrefill, 9 * kMs, 10 * kMs, 16, 16, "prefill");
  run.step(StageKind::kDecode, 10 * kMs, 20 * kMs, 1, 17, "decode");
  for (Row s = 0; s < 3; ++s) run.trace.steps.missing[s] = MissingKernels::kAll;
  run.trace.metadata["mode"] = "default";
  const Report report = report_of(run.trace);
  ASSERT_EQ(report.cannot_tell.size(), 1U);
  EXPECT_TRUE(report.cannot_tell[0].why.starts_with("no GPU work seen"));
  EXPECT_NE(report.cannot_tell[0].how_to_find_out.find("llmprof workload --device cpu --record"), std::string::npos);
  EXPECT_TRUE(report.diagnostics.empty());
  for (const Finding& finding : report.findings)
    for (const std::string& advice : finding.advice) EXPECT_EQ(advice.find("GPU"), std::string::npos) << advice;
  run.trace.metadata["mode"] = "light";  // then nobody looked
  EXPECT_GT(report_of(run.trace).cannot_tell.size(), 3U);
}

// A first second of recorded steps that load kernels: taken for the cost of recording, they came to +311 %.
TEST(Distortion, WarmUpIsNotTheCostOfRecording) {
  AnalyzedRecording run = two_halves(1040'000, 1000'000, 20, 4 * kMs);
  Report report = report_of(run.trace);
  ASSERT_TRUE(report.overhead && report.overhead->distortion_frac);
  EXPECT_NEAR(*report.overhead->distortion_frac, 0.04, 0.005);
  // Without the second recorded part there is only the warm-up to compare with, which says nothing.
  Trace& trace = run.trace;
  trace.recorded.resize(2);
  for (Row s = 0; s < trace.steps.size(); ++s)
    if (trace.steps.start_ns[s] >= trace.recorded.start_ns[kDark]) trace.steps.missing[s] = MissingKernels::kAll;
  report = report_of(trace);
  EXPECT_FALSE(report.overhead->distortion_frac.has_value());
  bool explained = false;
  for (const CannotTell& row : report.cannot_tell) explained |= row.why.find("0 steps with and") != std::string::npos;
  EXPECT_TRUE(explained);
}

TEST(Distortion, OnlyStepsWithoutCuptiCountWhereItLeft) {
  AnalyzedRecording run = two_halves(1200'000, 1100'000);
  // The second half of the unrecorded window runs without CUPTI and faster; the first half had records off only.
  Trace& trace = run.trace;
  const int64_t dark = trace.recorded.start_ns[kDark], end = dark + trace.recorded.dur_ns[kDark];
  const int64_t left = dark + (end - dark) / 2;
  trace.recorded.resize(4);
  trace.recorded.dur_ns[kDark] = left - dark;
  trace.recorded.start_ns[3] = left;
  trace.recorded.dur_ns[3] = end - left;
  trace.recorded.process_id[3] = 1;
  trace.recorded.level[3] = RecordingLevel::kLight;
  trace.recorded.reason[3] = trace.strings.intern("detached");
  for (Row s = 0; s < trace.steps.size(); ++s)
    if (trace.steps.start_ns[s] >= left && trace.steps.missing[s] == MissingKernels::kAll)
      trace.steps.end_ns[s] = trace.steps.start_ns[s] + 1000'000;
  const Report report = report_of(trace);
  ASSERT_TRUE(report.overhead && report.overhead->distortion_frac);
  EXPECT_EQ(report.overhead->method, "within-run");
  EXPECT_NEAR(*report.overhead->distortion_frac, 0.2, 0.01) << "against 1.0 ms, not 1.1 ms";
  EXPECT_LE(report.overhead->stages[0].unrecorded_steps, 11);
  EXPECT_GE(report.overhead->stages[0].unrecorded_steps, 9);
  EXPECT_EQ(report.overhead->stages[0].recorded_steps, report.overhead->stages[0].unrecorded_steps)
      << "as many from either side of a change";
}

TEST(Distortion, SaysWhatTheRunWasSlowedByAndWhatComingAndGoingHeldUp) {
  AnalyzedRecording run = two_halves(1100 * 1000, 1000 * 1000);
  EXPECT_FALSE(report_of(run.trace).overhead->run_frac.has_value());
  EXPECT_FALSE(report_of(run.trace).overhead->switching_ms.has_value());
  run.trace.metadata["recording_cost_frac"] = "0.0131";
  run.trace.metadata["process.7.recording_cost_frac"] = "0.0142";
  run.trace.metadata["recording_budget_frac"] = "0.0200";
  Recorded& recorded = run.trace.recorded;
  const auto switches = [&](int64_t from, int64_t dur, RecordingLevel level, const char* reason) {
    const size_t row = recorded.size();
    recorded.resize(row + 1);
    recorded.start_ns[row] = from;
    recorded.dur_ns[row] = dur;
    recorded.process_id[row] = 1;
    recorded.level[row] = level;
    recorded.reason[row] = run.trace.strings.intern(reason);
  };
  switches(22 * kMs, kMs / 10, RecordingLevel::kLight, "detaching");
  switches(39 * kMs, kMs / 5, RecordingLevel::kLight, "attaching");
  switches(39 * kMs + kMs / 5, kMs / 10, RecordingLevel::kDefault, "attaching");
  const OverheadReport overhead = *report_of(run.trace).overhead;
  EXPECT_DOUBLE_EQ(overhead.run_frac.value(), 0.0142) << "of several processes the one that it cost most";
  EXPECT_DOUBLE_EQ(overhead.budget_frac.value(), 0.02);
  EXPECT_NEAR(overhead.switching_ms.value(), 0.3, 1e-9);
  EXPECT_GE(overhead.switching_steps.value(), 2);
  EXPECT_LE(overhead.switching_steps.value(), 4);
}

TEST(Distortion, StepsAtTheEdgeOfAWindowCountForNeitherSide) {
  AnalyzedRecording run = two_halves(1200'000, 1000'000);
  Trace& trace = run.trace;
  int64_t plain = 0, edges = 0;
  for (Row s = 0; s < trace.steps.size(); ++s) {
    if (trace.steps.missing[s] != MissingKernels::kAll) continue;
    if (++plain % 3 != 0) continue;  // a third of them, as slow as a recorder that comes and goes makes them
    trace.steps.state[s] = StepState::kWindowEdge;
    trace.steps.start_ns[s] -= 900'000;
    ++edges;
  }
  const Report report = report_of(trace);
  ASSERT_TRUE(report.overhead && report.overhead->distortion_frac);
  EXPECT_NEAR(*report.overhead->distortion_frac, 0.2, 0.01);
  ASSERT_FALSE(report.overhead->stages.empty());
  // The first after the recorded half is left out as well: its window begins in the other kind of time.
  EXPECT_EQ(report.overhead->stages[0].unrecorded_steps, plain - edges - 1);
}

// A host that is slow for some seconds is not what recording costs.
TEST(Distortion, ComparesStepsNextToEachOther) {
  std::vector<std::pair<bool, double>> wanted;
  const auto add = [&](size_t count, bool recorded, double ms) {
    for (size_t i = 0; i < count; ++i) wanted.emplace_back(recorded, ms + 0.01 * static_cast<double>(i % 3));
  };
  add(25, true, 11);
  add(40, false, 10);
  add(30, false, 20);
  add(20, true, 22);
  add(30, false, 20);
  add(20, true, 22);
  add(30, false, 20);
  add(200, false, 10);
  AnalyzedRecording run;
  TraceBuilder builder(run.trace);
  int64_t at = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    const int64_t length = static_cast<int64_t>(wanted[i].second * 1e6);
    const StepId step = run.step(StageKind::kDecode, at, at + length, 1, 100, "decode_step");
    run.trace.steps.missing[step] = wanted[i].first ? MissingKernels::kNone : MissingKernels::kAll;
    run.trace.steps.state[step] = wanted[i].first ? StepState::kUsual : StepState::kNotRecorded;
    builder.add<Recorded>({.start_ns = at,
                           .dur_ns = length,
                           .process_id = 0,
                           .level = wanted[i].first ? RecordingLevel::kDefault : RecordingLevel::kLight,
                           .reason = run.trace.strings.intern(wanted[i].first ? "start" : "detached")});
    at += length;
  }
  run.window(0, at);
  const Report report = report_of(run.trace);
  ASSERT_TRUE(report.overhead && report.overhead->distortion_frac);
  EXPECT_NEAR(*report.overhead->distortion_frac, 0.1, 0.02) << "all recorded against all others: 1.2";
}

TEST(Distortion, AboveFivePercentIsAFinding) {
  const AnalyzedRecording run = two_halves(1200'000, 1000'000);
  const Report report = report_of(run.trace);
  const Finding* finding = finding_of(report, "profiler-distortion");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->severity, FindingSeverity::kMinor);
  EXPECT_EQ(finding->evidence[0].provenance, Provenance::kMeasured);
  EXPECT_TRUE(finding->title.starts_with("steps take ") && finding->title.ends_with(" % longer while recorded"))
      << finding->title;
}

// The recorder lists much work of its own, as when it comes, and the steps take as long as without it.
TEST(Distortion, OverheadThatNoStepFeelsIsNoFinding) {
  const auto with_overhead = [](int64_t recorded_ns) {
    AnalyzedRecording run = two_halves(recorded_ns, 1000'000);
    const int64_t window_ns = run.trace.windows[0].end_ns - run.trace.windows[0].start_ns;
    run.trace.overheads.append({.start_ns = 0, .dur_ns = window_ns / 5, .thread = 0});
    return report_of(run.trace);
  };
  const Report harmless = with_overhead(1000'300);
  ASSERT_TRUE(harmless.overhead && harmless.overhead->ci95);
  EXPECT_LT((*harmless.overhead->ci95)[1], 0.05);
  EXPECT_GT(harmless.overhead->recorded_ms.ns, 0);
  EXPECT_EQ(finding_of(harmless, "profiler-distortion"), nullptr);
  const Report slower = with_overhead(1100'000);
  const Finding* finding = finding_of(slower, "profiler-distortion");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->severity, FindingSeverity::kMinor);
}

TEST(Distortion, UnrecordedStagesHaveNoGpuFigures) {
  const AnalyzedRecording run = two_halves(1040'000, 1000'000);
  const Report report = report_of(run.trace);
  const StageTiming* dark = stage_of(report, "decode_step [not recorded]");
  ASSERT_NE(dark, nullptr);
  EXPECT_FALSE(dark->gpu_busy_ms.known || dark->gpu_idle_ms.known);
  EXPECT_FALSE(dark->kernels.known || dark->launches.known) << "none recorded is not none";
  EXPECT_TRUE(stage_of(report, "decode_step")->kernels.known);
  EXPECT_EQ(dark->not_recorded_ms.ns, dark->wall_ms.ns);
  EXPECT_FALSE(dark->gpu_busy_frac || dark->flops || dark->bound);
  EXPECT_TRUE(report.latency && report.latency->itl_ms);
  EXPECT_EQ(report.latency->itl_ms->n, 40) << "their wall time is a step time all the same";
  for (const IdleRecord& row : report.idle) EXPECT_NE(row.cause, "not-recorded");
}

TEST(Distortion, NoneIsExplained) {
  AnalyzedRecording run = two_halves(1040'000, 1000'000, 3);
  Report report = report_of(run.trace);
  EXPECT_FALSE(report.overhead->distortion_frac.has_value());
  const auto why = [&] {
    for (const CannotTell& row : report.cannot_tell)
      if (row.question.find("slower") != std::string::npos) return row.why;
    return std::string();
  };
  EXPECT_NE(why().find("5 of each"), std::string::npos) << why();
  run.trace.recorded.level[kDark] = RecordingLevel::kDefault;
  report = report_of(run.trace);
  EXPECT_NE(why().find("everything was recorded"), std::string::npos) << why();
}

TEST(Distortion, AgainstABaseline) {
  const AnalyzedRecording run = two_halves(1100'000, 1000'000);
  AnalyzedRecording light = two_halves(1, 1000'000);
  // Only its unrecorded half: a run in light mode.
  Trace& baseline = light.trace;
  Steps kept;
  kept.resize(0);
  for (Row s = 0; s < baseline.steps.size(); ++s) {
    if (baseline.steps.missing[s] != MissingKernels::kAll) continue;
    size_t column_index = 0;
    std::vector<const void*> columns;
    baseline.steps.for_each_column([&](const FieldInfo&, const auto& column) { columns.push_back(&column); });
    kept.for_each_column([&]<class T>(const FieldInfo&, std::vector<T>& column) {
      column.push_back((*static_cast<const std::vector<T>*>(columns[column_index++]))[s]);
    });
  }
  baseline.steps = kept;
  baseline.gpu_ops.resize(0);  // of the steps that are gone
  baseline.gpu_links.resize(0);
  AnalyzeOptions options;
  options.baseline = &baseline;
  const Report report = report_of(run.trace, options);
  ASSERT_TRUE(report.overhead->distortion_frac.has_value());
  EXPECT_EQ(report.overhead->method, "baseline");
  EXPECT_NEAR(*report.overhead->distortion_frac, 0.10, 0.01);
}

TEST(Distortion, ABaselineWhoseHostRanAheadTellsNothing) {
  AnalyzedRecording run = two_halves(1100'000, 1000'000);
  for (int64_t& sync : run.trace.steps.sync_ns) sync = -1;
  const AnalyzedRecording light = two_halves(1, 100'000);
  Trace baseline_like = AnalyzedRecording().trace;
  baseline_like.steps = light.trace.steps;
  baseline_like.strings = StringPool();
  for (Row s = 0; s < baseline_like.steps.size(); ++s) {
    baseline_like.steps.missing[s] = MissingKernels::kAll;
    baseline_like.steps.end_ns[s] += s % 7 * 13;  // observed one by one, not a loop's time divided
    baseline_like.steps.stage[s] = baseline_like.strings.intern("decode_step");
  }
  AnalyzeOptions options;
  options.baseline = &baseline_like;
  const Report report = report_of(run.trace, options);
  EXPECT_FALSE(report.overhead->distortion_frac.has_value());
}

TEST(Distortion, ByHostEventsWhereStepsHaveNoNames) {
  AnalyzedRecording run = two_halves(1050'000, 1000'000);
  Trace& trace = run.trace;
  const int64_t dark = trace.recorded.start_ns[kDark], light = dark + trace.recorded.dur_ns[kDark];
  const int64_t end = light + trace.recorded.dur_ns[2];
  trace.steps.clear();
  for (StepId& step : trace.gpu_links.step) step = kNoRow;
  for (StepId& step : trace.gaps.step) step = kNoRow;
  for (int64_t at = 10; at < end; at += at < dark ? 5'000'000 : at < light ? 1'000'000 : 1'050'000) {
    trace.recurring_calls.time_ns.push_back(at);
    if (at < dark || at >= light) run.api("cudaStreamSynchronize", at + 100, 500'000);
  }
  trace.recurring_calls.thread.assign(trace.recurring_calls.time_ns.size(), 0);
  trace.recurring_calls.key.assign(trace.recurring_calls.time_ns.size(), 77);
  Report report = report_of(trace);
  ASSERT_TRUE(report.overhead->distortion_frac.has_value());
  EXPECT_EQ(report.overhead->method, "recurring host event");
  EXPECT_NEAR(*report.overhead->distortion_frac, 0.05, 1e-6);
  trace.api_calls.clear();  // a host that never waits
  trace.api_links.clear();
  report = report_of(trace);
  EXPECT_FALSE(report.overhead->distortion_frac.has_value());
}

}  // namespace
}  // namespace llmprof
