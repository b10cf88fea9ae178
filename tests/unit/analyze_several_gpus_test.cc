// Steps that several GPUs share.
#include <gtest/gtest.h>

#include "analyze/several_gpus.h"
#include "analyze_recording.h"
#include "several_streams.h"

namespace llmprof {
namespace {

// A decode step of 1 ms on several GPUs; activities in time order.
struct Gpus {
  AnalyzedRecording run;
  std::vector<Row> streams, steps;
  explicit Gpus(int32_t count = 2) {
    for (int32_t device = 0; device < count; ++device) {
      streams.push_back(device == 0 ? StreamId(0) : run.add_stream(device));
      run.window(0, 1000 * kUs, device);
      steps.push_back(run.step(StageKind::kDecode, 0, 1000 * kUs, 1, 100, {}, device));
    }
  }
  void work(size_t device, int64_t start_us, int64_t us, const char* name = "kernel",
            Category category = Category::kNorm) {
    const bool copy = std::string_view(name).starts_with("Memcpy");
    run.gpu(name, category, start_us * kUs, us * kUs,
            {.step = steps[device], .stream = streams[device], .kind = copy ? GpuOpKind::kMemcpy : GpuOpKind::kKernel});
    run.busy(start_us * kUs, (start_us + us) * kUs, static_cast<int32_t>(device));
  }
  void copy(size_t device, int64_t start_us, int64_t us) {
    work(device, start_us, us, "Memcpy PtoP (Device -> Device)", Category::kCopy);
  }
  std::vector<int64_t> least() const { return group_trace(run.trace).least_gpu_ns; }
};

TEST(SeveralGpus, OneAfterTheOtherNeedsTheSum) {
  Gpus two;
  two.work(0, 0, 100);
  two.copy(0, 150, 10);
  two.work(1, 300, 200);
  two.copy(1, 600, 5);
  two.work(0, 800, 30);
  EXPECT_EQ(two.least(), std::vector<int64_t>(2, (100 + 10 + 200 + 5 + 30) * kUs));
}

TEST(SeveralGpus, ThreeHandTheStepOn) {
  Gpus three(3);
  three.work(0, 0, 100);
  three.copy(0, 150, 10);
  three.work(1, 300, 200);
  three.copy(1, 550, 10);
  three.work(2, 700, 50);
  EXPECT_EQ(three.least(), std::vector<int64_t>(3, 370 * kUs));
}

TEST(SeveralGpus, WhatDoesNotWaitForACopyMayRunBesideIt) {
  Gpus two;
  two.work(0, 0, 100);
  two.copy(0, 100, 10);
  two.work(1, 200, 50);
  two.work(0, 300, 40);  // needs nothing of the other GPU
  two.copy(0, 350, 10);
  two.work(1, 400, 20);
  // The second copy is done 160 us after the beginning at best, and so is the first part of GPU 1.
  EXPECT_EQ(two.least(), std::vector<int64_t>(2, (160 + 20) * kUs));
}

TEST(SeveralGpus, ThatMeetInCollectivesNeedAsLongAsTheBusiest) {
  Gpus two;
  for (const int64_t at : {0, 300, 600}) {
    two.work(0, at, 40);
    two.work(1, at + 100, 50);
    two.work(0, at + 160, 10, "ncclAllReduce", Category::kCommunication);
    two.work(1, at + 165, 10, "ncclAllReduce", Category::kCommunication);
  }
  EXPECT_EQ(two.least(), std::vector<int64_t>(2, 3 * 60 * kUs));
}

TEST(SeveralGpus, WithNothingBetweenThemAreOnTheirOwn) {
  Gpus two;
  two.work(0, 0, 100);
  two.work(1, 200, 300);
  EXPECT_EQ(two.least(), (std::vector<int64_t>{100 * kUs, 300 * kUs}));
}

TEST(SeveralGpus, StreamsOfOneGpuCountOnce) {
  Gpus two;
  two.work(0, 0, 100);
  two.run.gpu("beside", Category::kNorm, 50 * kUs, 100 * kUs, {.step = two.steps[0]});
  two.copy(0, 200, 10);
  two.work(1, 300, 100);
  EXPECT_EQ(two.least().front(), (150 + 10 + 100) * kUs);
}

// The host of the first rank holds both up: that is the finding, and the other GPU's wait says which one is late.
TEST(SeveralGpus, TheOneThatOthersWaitForIsNamed) {
  const auto live = [](const TwoRanks& program) {  // a recording of both processes by llmprof
    TestTrace b = program.made();
    for (const int64_t process : {1, 2}) b.level(-kMs, 100 * kMs, RecordingLevel::kDefault, process);
    return b;
  };
  TestTrace late = live(TwoRanks{.code_ns = 400'000, .graphs = true});
  const Result<Report> report = analyze(late.derive_all());
  ASSERT_TRUE(report);
  const Finding* skew = nullptr;
  for (const Finding& one : report->findings)
    if (one.id == "rank-skew") skew = &one;
  ASSERT_NE(skew, nullptr);
  EXPECT_EQ(skew->severity, FindingSeverity::kMinor);
  EXPECT_NE(skew->title.find("GPU 1 waits 0.4 ms a step"), std::string::npos) << skew->title;
  ASSERT_EQ(skew->evidence.size(), 3U);
  EXPECT_NEAR(skew->evidence[0].value.value_or(0), 0.4, 0.001);
  EXPECT_DOUBLE_EQ(skew->evidence[1].value.value_or(0), TwoRanks::kLayers);
  EXPECT_EQ(skew->evidence[2].metric, "of its waiting, for GPU 0");
  ASSERT_TRUE(skew->gain);
  EXPECT_EQ(skew->gain->method, "replay");
  EXPECT_NEAR(skew->gain->from - skew->gain->to, 0.4, 0.02);
  const Finding& first = report->findings.front();
  EXPECT_EQ(first.id, "host-preprocessing") << "what holds up the first rank";
  ASSERT_TRUE(first.gain);
  EXPECT_NEAR(first.gain->from - first.gain->to, 0.4, 0.02);
  ASSERT_EQ(report->host.size(), 2U);
  for (const HostRecord& host : report->host) {
    EXPECT_EQ(host.syncs, TwoRanks::kSteps) << "of GPU " << host.device;
    EXPECT_EQ(host.launches, TwoRanks::kSteps);
  }
  for (const CannotTell& one : report->cannot_tell) EXPECT_EQ(one.question.find("rank-skew"), std::string::npos);

  TestTrace even = live(TwoRanks{.graphs = true});
  const Result<Report> healthy = analyze(even.derive_all());
  ASSERT_TRUE(healthy);
  for (const Finding& one : healthy->findings) EXPECT_NE(one.id, "rank-skew");
}

// One process drives both, and waits for both behind each half of each lot, within steps or at their ends.
TEST(SeveralGpus, WaitsThatKeepThemFromWorkingAtOnceComeFirst) {
  for (const bool ranges : {true, false}) {
    TestTrace b = Relay{.ranges = ranges}.made();
    b.level(-kMs, 1000 * kMs, RecordingLevel::kDefault);
    const Result<Report> report = analyze(b.derive_all());
    ASSERT_TRUE(report);
    ASSERT_FALSE(report->findings.empty());
    const Finding& first = report->findings.front();
    EXPECT_EQ(first.id, "sync-bound");
    ASSERT_TRUE(first.gain);
    const double saved = 1 - first.gain->to / first.gain->from;
    EXPECT_NEAR(saved, ranges ? 0.41 : 0.5, 0.02) << "seven halves for twelve; one for two";
  }
}

// Lots follow each other through both GPUs, so the one with more work sets the pace.
TEST(SeveralGpus, PartsOfAPassThatDifferAreFoundWithWhatEqualOnesBring) {
  const auto report_of_relay = [](const Relay& relay) {
    TestTrace b = relay.made();
    b.level(-kMs, 1000 * kMs, RecordingLevel::kDefault);
    return *analyze(b.derive_all());
  };
  const Relay even{.waited = 0, .ranges = false},
      uneven{.waited = 0, .ranges = false, .kernel_ns = 90'000, .second_ns = 30'000};
  const Report report = report_of_relay(uneven), healthy = report_of_relay(even);
  for (const Finding& one : healthy.findings) EXPECT_NE(one.id, "uneven-gpus");
  ASSERT_FALSE(report.findings.empty());
  const Finding& first = report.findings.front();
  EXPECT_EQ(first.id, "uneven-gpus");
  EXPECT_EQ(first.device, 0);
  EXPECT_NE(first.title.find("GPU 0 has 2.98 times the work of GPU 1"), std::string::npos) << first.title;
  ASSERT_TRUE(first.gain);
  EXPECT_EQ(first.gain->method, "replay");
  EXPECT_NEAR(first.gain->to / first.gain->from, 61.0 / 91, 0.02) << "from lot to lot";
}

TEST(SeveralStreams, ThatTakeTurnsAreFoundAndThoseThatDoNotAreNot) {
  for (const bool turns : {true, false}) {
    TestTrace b = Turns{.turns = turns}.made();
    b.level(-kMs, 100 * kMs, RecordingLevel::kDefault);
    const Result<Report> report = analyze(b.derive_all());
    ASSERT_TRUE(report);
    const Finding* const found = finding_of(*report, "streams-taking-turns", "decode");
    ASSERT_EQ(found != nullptr, turns);
    if (!turns) continue;
    EXPECT_EQ(&report->findings.front(), found);
    ASSERT_TRUE(found->gain);
    EXPECT_NEAR(found->gain->to / found->gain->from, 0.5, 0.03);
    EXPECT_NEAR(found->evidence[0].value.value_or(0), 0.6, 0.001) << "20 kernels of 30 us on either";
  }
}

}  // namespace
}  // namespace llmprof
