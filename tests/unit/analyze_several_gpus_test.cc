// Steps that several GPUs share.
#include <gtest/gtest.h>

#include "analyze/several_gpus.h"
#include "analyze_recording.h"

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

}  // namespace
}  // namespace llmprof
