// How fast the CPU of the program was, by the recorder's probes, and what follows for the headline and the recorder's
// cost.
#include <gtest/gtest.h>

#include "analyze_recording.h"
#include "derive/host_pace.h"

namespace llmprof {
namespace {

constexpr int64_t kBestNs = 4'000, kSlowNs = 5'000;

void probe(AnalyzedRecording& run, int64_t at, int64_t took_ns, ThreadId thread = 0) {
  TraceBuilder(run.trace).add<HostPaces>({.start_ns = at, .dur_ns = took_ns, .thread = thread});
}

// Known not to be at full pace.
bool slow(const HostPace& pace, int64_t start_ns, int64_t end_ns) {
  return pace.during(0, start_ns, end_ns).has_value() && !pace.full(0, start_ns, end_ns);
}

// Twenty probes 5 ms apart; every fourth is slow.
AnalyzedRecording probed() {
  AnalyzedRecording run;
  for (int64_t i = 0; i < 20; ++i) probe(run, i * 5 * kMs, i % 4 == 3 ? kSlowNs : kBestNs);
  return run;
}

TEST(HostPace, AStepIsAtFullPaceWhereNoProbeNearItIsSlow) {
  const AnalyzedRecording run = probed();
  const HostPace pace(run.trace);
  ASSERT_EQ(pace.probed().size(), 1U);
  EXPECT_EQ(pace.probed()[0].probes, 20);
  EXPECT_DOUBLE_EQ(pace.probed()[0].best_ns, kBestNs);
  EXPECT_DOUBLE_EQ(pace.probed()[0].slow_frac, 0.25);
  EXPECT_TRUE(pace.full(0, 1 * kMs, 9 * kMs)) << "probes at 0, 5 and 10 ms";
  EXPECT_FALSE(slow(pace, 1 * kMs, 9 * kMs));
  EXPECT_TRUE(slow(pace, 6 * kMs, 14 * kMs)) << "the one behind it, at 15 ms, is slow";
  EXPECT_TRUE(slow(pace, 16 * kMs, 19 * kMs)) << "and the one before it";
  EXPECT_DOUBLE_EQ(*pace.during(0, 16 * kMs, 19 * kMs), (0.8 + 1) / 2);
}

// What it waited for a CPU between two probes is of the steps between these.
TEST(HostPace, AStepThatWaitedForACpuIsNotAtFullPace) {
  AnalyzedRecording run;
  for (int64_t i = 0; i < 20; ++i) {
    const int64_t waited_ns = i == 0 ? -1 : i == 8 ? 2 * kMs : i == 12 ? 50'000 : 0;
    TraceBuilder(run.trace).add<HostPaces>(
        {.start_ns = i * 5 * kMs, .dur_ns = kBestNs, .thread = 0, .waited_ns = waited_ns});
  }
  const HostPace pace(run.trace);
  EXPECT_TRUE(pace.full(0, 26 * kMs, 34 * kMs));
  EXPECT_TRUE(slow(pace, 36 * kMs, 39 * kMs)) << "2 of 5 ms";
  EXPECT_TRUE(slow(pace, 31 * kMs, 36 * kMs));
  EXPECT_TRUE(pace.full(0, 41 * kMs, 49 * kMs)) << "it waited before the probe at 40 ms";
  EXPECT_TRUE(pace.full(0, 56 * kMs, 59 * kMs)) << "a moment is nothing";
  EXPECT_NEAR(*pace.during(0, 36 * kMs, 39 * kMs), (1 + 0.6) / 2, 1e-3);
  EXPECT_DOUBLE_EQ(pace.probed()[0].slow_frac, 0.05);
  EXPECT_NEAR(*pace.probed()[0].waited_frac, 2.05 / 95, 1e-3);
  EXPECT_FALSE(HostPace(probed().trace).probed()[0].waited_frac.has_value());
}

TEST(HostPace, NothingIsKnownWhereNoProbeIsNear) {
  const AnalyzedRecording run = probed();
  const HostPace pace(run.trace);
  EXPECT_FALSE(pace.full(0, 200 * kMs, 210 * kMs));
  EXPECT_FALSE(slow(pace, 200 * kMs, 210 * kMs));
  EXPECT_FALSE(pace.during(0, 200 * kMs, 210 * kMs).has_value());
  EXPECT_TRUE(HostPace(AnalyzedRecording().trace).probed().empty());
}

TEST(HostPace, ARunThatWasSlowThroughoutIsHeldAgainstTheMachine) {
  AnalyzedRecording run;
  for (int64_t i = 0; i < 20; ++i) probe(run, i * 5 * kMs, kSlowNs);
  EXPECT_TRUE(HostPace(run.trace).full(0, 1 * kMs, 9 * kMs)) << "nothing tells";
  const HostPace pace(run.trace, kBestNs);
  EXPECT_TRUE(slow(pace, 1 * kMs, 9 * kMs));
  EXPECT_DOUBLE_EQ(pace.probed()[0].slow_frac, 1);
}

TEST(HostPace, NothingIsKnownOfSeveralThreads) {
  AnalyzedRecording run = probed();
  const ThreadId other = TraceBuilder(run.trace).add<Threads>({.process_id = 0, .thread_id = 1});
  for (int64_t i = 0; i < 20; ++i) probe(run, 100 * kMs + i * 5 * kMs, kBestNs, other);
  EXPECT_TRUE(HostPace(run.trace).probed().empty());
}

// Two processes, each with a GPU of its own: the pace of a step is that of its own process's CPU, and what is slow is
// held against the quicker of the two.
TEST(HostPace, EachProcessHasItsOwn) {
  AnalyzedRecording run;
  TraceBuilder rows(run.trace);
  const ThreadId other = rows.add<Threads>({.process_id = 1, .thread_id = 1});
  for (int64_t i = 0; i < 20; ++i) {
    probe(run, i * 5 * kMs, kBestNs);
    probe(run, i * 5 * kMs, kSlowNs, other);
  }
  const auto launch = [&](int32_t device, ThreadId thread) {
    const ApiCallId api = rows.add<ApiCalls>({.start_ns = 0, .dur_ns = 10, .thread = thread});
    const StreamId stream = device == 0 ? StreamId(0) : rows.add<Streams>({.device = device});
    rows.add<GpuOps>({.start_ns = 20, .dur_ns = 10, .stream = stream});
    rows.add<GpuLinks>({.api = api});
  };
  launch(0, 0);
  launch(1, other);
  const HostPace pace(run.trace);
  ASSERT_EQ(pace.probed().size(), 2U);
  EXPECT_TRUE(pace.full(0, 1 * kMs, 9 * kMs));
  EXPECT_DOUBLE_EQ(*pace.during(1, 1 * kMs, 9 * kMs), 0.8);
  EXPECT_FALSE(pace.during(2, 1 * kMs, 9 * kMs).has_value()) << "nobody is known to use it";
  launch(0, other);
  EXPECT_FALSE(HostPace(run.trace).during(0, 1 * kMs, 9 * kMs).has_value()) << "two processes use it";
}

// Decode steps of 10 ms each with a probe at both ends: of every five the last two took half as long again, on a slow
// CPU.
AnalyzedRecording served() {
  AnalyzedRecording run;
  run.window(0, 400 * kMs);
  int64_t at = 0;
  run.step(StageKind::kPrefill, at, at + 10 * kMs, 8, 8);
  at += 10 * kMs;
  for (int i = 0; i < 30; ++i) {
    const bool slow = i % 5 >= 3;
    const int64_t length = slow ? 15 * kMs : 10 * kMs;
    run.step(StageKind::kDecode, at, at + length, 1, 10 + i);
    probe(run, at + kMs, slow ? kSlowNs : kBestNs);
    at += length;
    probe(run, at - 100 * kUs, slow ? kSlowNs : kBestNs);
  }
  return run;
}

TEST(HostPace, TheHeadlineHasTheMedianOfStepsAtFullPaceBesideTheOther) {
  const Report report = report_of(served());
  ASSERT_TRUE(report.latency.has_value());
  const Headline& headline = report.latency->headline;
  ASSERT_TRUE(headline.itl_ms && headline.itl_full_pace_ms);
  EXPECT_DOUBLE_EQ(*headline.itl_full_pace_ms, 10);
  EXPECT_LT(*headline.itl_full_pace_n, headline.itl_n);
  EXPECT_GE(*headline.itl_full_pace_n, 5);
  ASSERT_EQ(report.host_pace.size(), 1U);
  EXPECT_NEAR(report.host_pace[0].slow_frac, 0.4, 0.001);
  size_t paced = 0;
  for (const StepRecord& step : report.steps) paced += step.host_pace_frac ? 1 : 0;
  EXPECT_GE(paced, 30U);
}

// Recorded steps on a slow CPU and unrecorded ones on a quick one differ by more than what recording costs.
TEST(HostPace, StepsRecordedAndNotAreComparedAtFullPace) {
  AnalyzedRecording run;
  int64_t at = 0;
  for (int i = 0; i < 40; ++i) {
    const bool recorded = i < 20, slow = recorded && i < 12;
    const int64_t length = (recorded ? 11 : 10) * kMs + (slow ? 6 * kMs : 0);
    const StepId step = run.step(StageKind::kDecode, at, at + length, 1, 100, "decode_step");
    run.trace.steps.missing[step] = recorded ? MissingKernels::kNone : MissingKernels::kAll;
    run.trace.steps.state[step] = recorded ? StepState::kUsual : StepState::kNotRecorded;
    probe(run, at + kMs, slow ? kSlowNs : kBestNs);
    at += length;
  }
  TraceBuilder builder(run.trace);
  const int64_t middle = run.trace.steps.end_ns[19];
  builder.add<Recorded>({.start_ns = 0, .dur_ns = middle, .process_id = 0, .level = RecordingLevel::kDefault});
  builder.add<Recorded>({.start_ns = middle,
                         .dur_ns = at - middle,
                         .process_id = 0,
                         .level = RecordingLevel::kLight,
                         .reason = run.trace.strings.intern("detached")});
  run.window(0, at);
  const std::vector<StageTimes> stages = stage_times(run.trace, HostPace(run.trace));
  ASSERT_EQ(stages.size(), 1U);
  for (const double ns : times_ns(stages[0].steps, true)) EXPECT_EQ(ns, 11 * kMs);
  EXPECT_GE(times_ns(stages[0].steps, true).size(), 5U);
  EXPECT_GE(times_ns(stages[0].steps, false).size(), 15U);
}

}  // namespace
}  // namespace llmprof
