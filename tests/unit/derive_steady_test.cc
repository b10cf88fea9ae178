// Warm-up by shape, by evidence and by what is recorded; the statistics of one series: base_steady_series_test.cc.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "derive/steady.h"
#include "derive/steps.h"
#include "derive_trace_builder.h"

namespace llmprof {
namespace {

constexpr int64_t kStepMs = 1'000'000;

// Steps one behind the other on device 0, as find_steps leaves them, and what a recorder saw meanwhile.
class StepTimes {
 public:
  Trace trace;
  int64_t at = 0;

  StepTimes() {
    rows().add<Threads>({.process_id = 1, .thread_id = 1});
    for (const int32_t device : {0, 1}) rows().add<Streams>({.device = device, .context = 1, .stream = 7});
  }
  Row step(StageKind kind, double ms, int64_t tokens = 1, int64_t sequences = 1, int64_t context = -1) {
    const int64_t start = at;
    at += std::llround(ms * 1e6);
    return rows().add<Steps>({.kind = kind,
                              .source = StageSource::kNvtx,
                              .stage = text(name_of(kind)),
                              .device = 0,
                              .start_ns = start,
                              .end_ns = at,
                              .host_start_ns = start,
                              .gpu_start_ns = start,
                              .gpu_end_ns = at,
                              .new_tokens = tokens,
                              .sequences = sequences,
                              .context = context,
                              .output_tokens = sequences});
  }
  void steps(size_t n, StageKind kind, double ms, int64_t tokens = 1, int64_t sequences = 1) {
    for (size_t i = 0; i < n; ++i)
      step(kind, ms * (1 + 0.01 * std::sin(static_cast<double>(i * i))), tokens, sequences);
  }
  // From `after` on in the step, for `ms`.
  void overhead(Row step, std::string_view name, double ms, double after = 0) {
    rows().add<Overheads>({.start_ns = start(step, after), .dur_ns = std::llround(ms * 1e6), .name = text(name)});
  }
  void call(Row step, std::string_view name, double ms, double after = 0) {
    rows().add<ApiCalls>(
        {.start_ns = start(step, after), .dur_ns = std::llround(ms * 1e6), .thread = 0, .name = text(name)});
  }
  void kernel(Row step, std::string_view name, double ms = 0.001) {
    rows().add<GpuOps>(
        {.start_ns = trace.steps.start_ns[step], .dur_ns = std::llround(ms * 1e6), .stream = 0, .name = text(name)});
    rows().add<GpuLinks>({.step = step});
  }
  void level(int64_t start, int64_t end, RecordingLevel level) {
    rows().add<Recorded>({.start_ns = start, .dur_ns = end - start, .process_id = 1, .level = level, .cut_ns = 0});
  }
  void hide(Row step) {
    trace.steps.missing[step] = MissingKernels::kAll;
    trace.steps.state[step] = StepState::kNotRecorded;
  }

  // "#..." with # for warm-up, by step.
  std::string marks() {
    find_steady(trace);
    std::string out;
    for (Row s = 0; s < trace.steps.size(); ++s) {
      const bool warm_up = trace.steps.phase[s] == StepPhase::kWarmUp;
      EXPECT_EQ(warm_up, trace.steps.warm_up_cause[s] != WarmUpCause::kNone);
      EXPECT_TRUE(warm_up || trace.steps.warm_up_ns[s] == 0);
      out += warm_up ? '#' : '.';
    }
    return out;
  }
  WarmUpCause cause(Row step) const { return trace.steps.warm_up_cause[step]; }
  double excess_ms(Row step) const { return static_cast<double>(trace.steps.warm_up_ns[step]) / 1e6; }

 private:
  TraceBuilder rows() { return TraceBuilder(trace); }
  StringId text(std::string_view text) { return trace.strings.intern(text); }
  int64_t start(Row step, double after) const { return trace.steps.start_ns[step] + std::llround(after * 1e6); }
};

TEST(Steady, ModulesLoadedInTheFirstPrompt) {
  StepTimes run;
  const Row first = run.step(StageKind::kPrefill, 300, 512);
  run.overhead(first, "module loading", 150);
  run.overhead(first, "Lazy Function Loading", 100, 160);
  for (int i = 0; i < 3; ++i) run.step(StageKind::kPrefill, 30, 512);
  EXPECT_EQ(run.marks(), "#...");
  EXPECT_EQ(run.cause(first), WarmUpCause::kModuleLoading);
  EXPECT_DOUBLE_EQ(run.excess_ms(first), 270);
}

// A program with one request: what was loaded in it is known to be no part of the next one.
TEST(Steady, TheOnlyPromptIsColdIfModulesWereLoadedInIt) {
  for (const bool loaded : {true, false}) {
    StepTimes run;
    const Row prompt = run.step(StageKind::kPrefill, 300, 512);
    run.steps(20, StageKind::kDecode, 10);
    if (loaded) run.call(prompt, "cuLibraryLoadData", 200);
    EXPECT_EQ(run.marks().substr(0, 2), loaded ? "#." : "..") << "nothing else says so";
    EXPECT_DOUBLE_EQ(run.excess_ms(prompt), loaded ? 200 : 0);
  }
}

TEST(Steady, ANewShapeIsCompiledInTheMiddle) {
  StepTimes run;
  run.steps(30, StageKind::kDecode, 10, 4, 4);
  const Row fresh = run.step(StageKind::kDecode, 900, 8, 8);
  run.overhead(fresh, "driver compiler", 500);
  run.overhead(fresh, "module loading", 100, 600);
  run.steps(30, StageKind::kDecode, 12, 8, 8);
  run.steps(5, StageKind::kDecode, 10, 4, 4);
  EXPECT_EQ(run.marks(), std::string(30, '.') + "#" + std::string(35, '.'));
  EXPECT_EQ(run.cause(fresh), WarmUpCause::kCompilation);
  EXPECT_NEAR(run.excess_ms(fresh), 888, 1);
}

TEST(Steady, AnOutlierWithoutACauseIsNone) {
  StepTimes run;
  run.steps(30, StageKind::kDecode, 10);
  const Row slow = run.step(StageKind::kDecode, 900);
  run.steps(30, StageKind::kDecode, 10);
  EXPECT_EQ(run.marks(), std::string(61, '.'));
  run.overhead(slow, "activity buffer request", 800);
  EXPECT_EQ(run.marks(), std::string(61, '.')) << "the recorder's own work comes again";
  run.overhead(slow, "lazy function loading", 800);
  EXPECT_EQ(run.marks(), std::string(30, '.') + "#" + std::string(30, '.'));
}

// Loading and allocating while a graph is captured: the longest of the disjoint parts is the cause.
TEST(Steady, WhatACaptureTook) {
  StepTimes run;
  const Row first = run.step(StageKind::kDecode, 100), second = run.step(StageKind::kDecode, 80);
  run.call(first, "cuStreamBeginCapture_v2", 0.1, 10);
  run.call(first, "cuModuleLoadData", 50, 20);
  run.call(first, "cuMemCreate", 10, 72);
  run.call(first, "cuStreamEndCapture", 0.1, 90);
  run.call(second, "cudaStreamBeginCapture", 0.1, 10);
  run.call(second, "cudaStreamEndCapture", 0.1, 40);
  run.call(second, "cudaGraphInstantiate", 20, 45);
  run.steps(8, StageKind::kDecode, 3);
  EXPECT_EQ(run.marks(), "##........");
  EXPECT_EQ(run.cause(first), WarmUpCause::kModuleLoading);
  EXPECT_EQ(run.cause(second), WarmUpCause::kGraphCapture);
}

TEST(Steady, AllocatingAtFirstIsWarmUpAndAllTheTimeIsNot) {
  for (const bool churn : {false, true}) {
    StepTimes run;
    for (int i = 0; i < 40; ++i) {
      const bool allocates = i == 0 || (churn && i % 3 == 0);
      const Row step = run.step(StageKind::kDecode, allocates ? 12 : 10);
      if (allocates) run.call(step, i == 0 ? "cuMemCreate" : "cudaMalloc", 2);
    }
    EXPECT_EQ(run.marks(), (churn ? "." : "#") + std::string(39, '.'));
    EXPECT_EQ(run.cause(0), churn ? WarmUpCause::kNone : WarmUpCause::kAllocation);
  }
}

TEST(Steady, EvidenceWithoutExcessIsNone) {
  StepTimes run;
  run.level(0, 10'000 * kStepMs, RecordingLevel::kDefault);
  run.steps(40, StageKind::kDecode, 10);
  for (Row s = 0; s < 40; ++s) run.kernel(s, s < 20 ? "gemv" : "gemv_split");
  run.overhead(20, "lazy function loading", 0.05);
  run.call(0, "cudaMalloc", 0.05);
  EXPECT_EQ(run.marks(), std::string(40, '.'));
}

// First launches count where everything before them was recorded.
TEST(Steady, FirstCallsAreKnownFromTheStartOnly) {
  enum Recorder { kFromStart, kLate, kKineto };
  for (const Recorder recorder : {kFromStart, kLate, kKineto}) {
    StepTimes run;
    run.at = 100 * kStepMs;
    const Row first = run.step(StageKind::kDecode, 11.5);
    run.steps(20, StageKind::kDecode, 10);
    for (Row s = 0; s < run.trace.steps.size(); ++s) run.kernel(s, "gemv");
    if (recorder == kLate) run.level(0, 50 * kStepMs, RecordingLevel::kLight);
    if (recorder != kKineto) run.level(50 * kStepMs, 900 * kStepMs, RecordingLevel::kDefault);
    EXPECT_EQ(run.marks(), "#" + std::string(20, '.'));
    EXPECT_EQ(run.cause(first), recorder == kFromStart ? WarmUpCause::kFirstCalls : WarmUpCause::kUnknown);
  }
}

// Recorded steps take 30 % longer: each kind is compared with its like.
TEST(Steady, UnrecordedStepsAreASeriesOfTheirOwn) {
  StepTimes run;
  run.step(StageKind::kDecode, 500);
  run.steps(20, StageKind::kDecode, 13);
  const Row hidden = run.step(StageKind::kDecode, 300);
  run.hide(hidden);
  for (int i = 0; i < 60; ++i) run.hide(run.step(StageKind::kDecode, 10));
  run.steps(20, StageKind::kDecode, 13);
  EXPECT_EQ(run.marks(), "#" + std::string(20, '.') + "#" + std::string(80, '.'));
  EXPECT_EQ(run.cause(hidden), WarmUpCause::kUnknown) << "only its time is known";
  EXPECT_NEAR(run.excess_ms(hidden), 290, 1);
}

// All that is recorded is the first second, four times as slow as what follows unrecorded.
TEST(Steady, ABeginningThatIsAllThatIsRecorded) {
  StepTimes run;
  run.steps(16, StageKind::kDecode, 60);
  for (int i = 0; i < 200; ++i) run.hide(run.step(StageKind::kDecode, 14));
  EXPECT_EQ(run.marks(), std::string(16, '#') + std::string(200, '.'));
  EXPECT_NEAR(run.excess_ms(3), 46, 1);
  StepTimes recorded;
  recorded.steps(16, StageKind::kDecode, 18);
  for (int i = 0; i < 200; ++i) recorded.hide(recorded.step(StageKind::kDecode, 14));
  EXPECT_EQ(recorded.marks(), std::string(216, '.')) << "what recording costs";
}

// Recorded again after the steps that tell.
TEST(Steady, ABeginningThatWasRecordedBeforeFasterSteps) {
  StepTimes run;
  run.steps(20, StageKind::kDecode, 45);
  for (int i = 0; i < 20; ++i) run.hide(run.step(StageKind::kDecode, 11 + 0.01 * i));
  run.steps(2, StageKind::kDecode, 12);
  EXPECT_EQ(run.marks(), std::string(20, '#') + std::string(22, '.'));
}

// A library makes code for each new length, and loads it: the loading itself takes no time.
TEST(Steady, WhatIsLoadedWasMadeBefore) {
  StepTimes run;
  for (int i = 0; i < 10; ++i) run.call(run.step(StageKind::kDecode, 70 + 0.1 * i), "cuLibraryLoadData", 0.07, 60);
  run.steps(12, StageKind::kDecode, 14);
  EXPECT_EQ(run.marks(), std::string(10, '#') + std::string(12, '.'));
  EXPECT_EQ(run.cause(3), WarmUpCause::kModuleLoading);
}

TEST(Steady, WindowEdgesAreLeftAlone) {
  StepTimes run;
  run.trace.steps.state[run.step(StageKind::kDecode, 500)] = StepState::kWindowEdge;
  run.steps(20, StageKind::kDecode, 10);
  EXPECT_EQ(run.marks(), std::string(21, '.'));
}

TEST(Steady, PromptsOfUniqueLengthsAreComparedWithinAFactorOfTwo) {
  StepTimes run;
  const Row first = run.step(StageKind::kPrefill, 400, 700);
  for (const int tokens : {600, 520, 1000, 810, 930, 555}) run.step(StageKind::kPrefill, 0.04 * tokens, tokens);
  EXPECT_EQ(run.marks(), "#......");
  EXPECT_GT(run.excess_ms(first), 350);
  StepTimes steady;
  for (const int tokens : {1020, 600, 520, 1000, 810, 930, 555})
    steady.step(StageKind::kPrefill, 0.04 * tokens, tokens);
  EXPECT_EQ(steady.marks(), ".......") << "the longest first";
}

// Nothing to compare with but a longer prompt that was faster.
TEST(Steady, ALongerPromptInLessTimeTells) {
  StepTimes run;
  run.step(StageKind::kPrefill, 300, 100);
  run.step(StageKind::kPrefill, 30, 900);
  EXPECT_EQ(run.marks(), "#.");
  EXPECT_NEAR(run.excess_ms(0), 270, 1);
  StepTimes other;
  other.step(StageKind::kPrefill, 300, 900);
  other.step(StageKind::kPrefill, 30, 100);
  EXPECT_EQ(other.marks(), "..") << "a longer one may take longer";
}

TEST(Steady, ALongerPromptTellsThatIsWarmUpItself) {
  StepTimes run;
  run.step(StageKind::kPrefill, 1140, 8);
  const Row second = run.step(StageKind::kPrefill, 130, 192);
  run.call(second, "cuModuleLoadData", 30);
  EXPECT_EQ(run.marks(), "##");
}

TEST(Steady, UnknownPromptsAreNotComparedUnlessAlike) {
  StepTimes run;
  run.step(StageKind::kPrefill, 300, -1, -1);
  for (int i = 0; i < 4; ++i) run.step(StageKind::kPrefill, 30, -1, -1);
  EXPECT_EQ(run.marks(), ".....");
  for (int i = 0; i < 20; ++i) run.step(StageKind::kPrefill, 30, -1, -1);
  EXPECT_EQ(run.marks(), "#" + std::string(24, '.'));
}

// They make the same calls, however long they are: what they take beyond their kernels' time tells.
TEST(Steady, UnknownPromptsHaveTheSameHost) {
  constexpr double kKernelMs[] = {6, 21, 9, 32, 24, 13, 41};
  for (const bool cause_known : {true, false}) {
    StepTimes run;
    for (const double ms : kKernelMs)
      run.kernel(run.step(StageKind::kPrefill, ms + (ms == kKernelMs[0] ? 490 : 1), -1, -1), "attention", ms);
    if (cause_known) run.level(0, run.at, RecordingLevel::kDefault);
    EXPECT_EQ(run.marks(), cause_known ? "#......" : ".......") << "a cause is needed";
    EXPECT_EQ(run.cause(0), cause_known ? WarmUpCause::kFirstCalls : WarmUpCause::kNone);
    EXPECT_NEAR(run.excess_ms(0), cause_known ? 489 : 0, 1);
  }
}

TEST(Steady, ContextGrowsAndTheClockDrifts) {
  StepTimes run;
  for (int request = 0; request < 3; ++request)
    for (int i = 0; i < 200; ++i)
      run.step(StageKind::kDecode, (10 + 0.02 * i) * (1 - 0.0001 * (200 * request + i)), 1, 1, 100 + i);
  EXPECT_EQ(run.marks(), std::string(600, '.'));
}

TEST(Steady, AStageThatGetsEverFasterIsWarmUpThroughout) {
  StepTimes run;
  for (const double ms : {300, 100, 30}) run.step(StageKind::kPrefill, ms, 512);
  run.steps(20, StageKind::kDecode, 10);
  EXPECT_EQ(run.marks(), "###" + std::string(20, '.'));
  EXPECT_DOUBLE_EQ(run.excess_ms(0), 270);
  EXPECT_DOUBLE_EQ(run.excess_ms(2), 0);
}

TEST(Steady, WhatTheProgramNamesStaysAndNothingElseDoes) {
  StepTimes run;
  run.step(StageKind::kDecode, 500);
  run.step(StageKind::kDecode, 500);
  run.steps(20, StageKind::kDecode, 10);
  run.trace.steps.phase[0] = StepPhase::kWarmUp;  // by find_steps
  for (int times = 0; times < 2; ++times) {
    EXPECT_EQ(run.marks(), "##" + std::string(20, '.'));
    EXPECT_EQ(run.cause(0), WarmUpCause::kNamed);
    EXPECT_EQ(run.excess_ms(0), 0);
    EXPECT_NEAR(run.excess_ms(1), 490, 1);
  }
}

TEST(Steady, EachDeviceAndStageBeginsByItself) {
  StepTimes run;
  for (int i = 0; i < 8; ++i) {
    run.step(StageKind::kVision, i == 0 ? 90 : 9, 256);
    run.step(StageKind::kDecode, 10);
    run.trace.steps.device[run.step(StageKind::kDecode, i == 0 ? 100 : 10)] = 1;
  }
  EXPECT_EQ(run.marks(), "#.#" + std::string(21, '.'));
}

// From launches and ranges to phases: the first of eight steps loads its function.
TEST(Steady, AWholeRecording) {
  TestTrace t;
  int64_t at = 1000;
  for (int i = 0; i < 8; ++i) {
    const int64_t ns = (i == 0 ? 400 : 40) * kStepMs;
    t.annotation("decode_step", at, ns, AnnotationKind::kNvtx);
    if (i == 0) t.overhead("lazy function loading", at + 10, 300 * kStepMs);
    t.launch("gemm", at + ns - 20 * kStepMs, at + ns - 10 * kStepMs, 9 * kStepMs);
    t.api("cudaStreamSynchronize", at + ns - 9 * kStepMs, 8 * kStepMs + 500);
    at += ns + 1000;
  }
  t.derive_all();
  find_steady(t.trace);
  ASSERT_EQ(t.trace.steps.size(), 8U);
  EXPECT_EQ(t.trace.steps.phase[0], StepPhase::kWarmUp);
  EXPECT_EQ(t.trace.steps.warm_up_cause[0], WarmUpCause::kModuleLoading);
  for (Row s = 1; s < 8; ++s) EXPECT_EQ(t.trace.steps.phase[s], StepPhase::kServing);
}

}  // namespace
}  // namespace llmprof
