// Which kernels are profiled and when, from recordings made by hand.
#include <gtest/gtest.h>

#include "derive_trace_builder.h"
#include "drive/hot_kernels.h"
#include "import/importer.h"
#include "trace/trace_builder.h"

namespace llmprof {
namespace {

using drive::find_hot_kernels;
using drive::HotKernels;

// Steps of two kernels, "void ns::big<4>(int)" and "small", behind a warm-up of many launches; named by NVTX ranges.
class SteppedTrace : public TestTrace {
 public:
  SteppedTrace() { now_ = 1000; }
  void warm_up(int launches) {
    for (int i = 0; i < launches; ++i) one("void ns::big<4>(int)", 100);
    one("once", 100);
  }
  void step(int smalls, const char* name = "decode_step") {
    const int64_t begin = now_;
    one("void ns::big<4>(int)", 400);
    for (int i = 0; i < smalls; ++i) one("small", 50);
    one("tiny", 5);
    annotation(name, begin, now_ - begin, AnnotationKind::kNvtx);
    now_ += 1000;
  }
  Result<HotKernels> find(const drive::HotOptions& options) {
    finish_import(trace);
    EXPECT_TRUE(derive(trace));
    return find_hot_kernels(trace, options);
  }

 private:
  void one(const char* name, int64_t dur) {
    launch(name, now_, now_ + 10, dur);
    now_ += dur + 20;
  }
  int64_t now_ = 0;
};

TEST(HotKernels, TheOnesWithMostTimeBehindTheWarmUp) {
  SteppedTrace made;
  made.warm_up(7);
  for (int i = 0; i < 20; ++i) made.step(2);
  const Result<HotKernels> hot = made.find({.kernels = 2});
  ASSERT_TRUE(hot) << hot.error().text();
  ASSERT_EQ(hot->kernels.size(), 2U);
  EXPECT_EQ(hot->kernels[0].function, "big");  // of "void ns::big<4>(int)"
  EXPECT_EQ(hot->kernels[1].function, "small");
  EXPECT_NEAR(hot->kernels[0].share, 400.0 / 505, 1e-9);
  // The launches before the first step that counts, and of the steps as many as show both three times.
  EXPECT_GE(hot->launch_skip, 7);
  EXPECT_LE(hot->launch_count, 9);
  EXPECT_GE(hot->kernels[0].caught, drive::kCaughtEach);
  EXPECT_GE(hot->kernels[1].caught, drive::kCaughtEach);
  EXPECT_EQ(hot->kernels[0].caught + hot->kernels[1].caught, hot->launch_count);
}

TEST(HotKernels, KernelsThatAreFarApartAreCaughtWhereTheyMeet) {
  SteppedTrace made;
  for (int i = 0; i < 5; ++i) made.step(400);  // from the beginning of a step "big" would come after 400 launches
  const Result<HotKernels> hot = made.find({.kernels = 2});
  ASSERT_TRUE(hot) << hot.error().text();
  EXPECT_LE(hot->launch_count, drive::kLaunchesMost);
  for (const drive::HotKernel& kernel : hot->kernels) EXPECT_GE(kernel.caught, 1) << kernel.function;
}

TEST(HotKernels, ARecordingOfAnotherRecorderMayHaveBegunLate) {
  SteppedTrace made;
  for (int i = 0; i < 8; ++i) made.step(1);
  const Result<HotKernels> hot = made.find({.kernels = 1});
  ASSERT_TRUE(hot);
  ASSERT_EQ(hot->remarks.size(), 1U);
  EXPECT_NE(hot->remarks[0].find("may have begun after the program"), std::string::npos);
}

TEST(HotKernels, WhatIsRecordedFromTheBeginningNeedsNoRemark) {
  SteppedTrace made;
  made.warm_up(3);
  for (int i = 0; i < 8; ++i) made.step(1);
  made.level(0, 1'000'000, RecordingLevel::kDefault);
  const Result<HotKernels> hot = made.find({.kernels = 1});
  ASSERT_TRUE(hot);
  EXPECT_TRUE(hot->remarks.empty()) << hot->remarks[0];
}

TEST(HotKernels, TimeBeforeTheFirstStepThatWasNotRecordedIsSaid) {
  SteppedTrace made;
  made.warm_up(3);
  for (int i = 0; i < 8; ++i) made.step(1);
  made.level(0, 900, RecordingLevel::kOff);
  made.level(900, 1'000'000, RecordingLevel::kDefault);
  const Result<HotKernels> hot = made.find({.kernels = 1});
  ASSERT_TRUE(hot);
  ASSERT_EQ(hot->remarks.size(), 1U);
  EXPECT_NE(hot->remarks[0].find("not recorded all the time"), std::string::npos);
}

TEST(HotKernels, OnlyLaunchesInTheRangeCount) {
  SteppedTrace made;
  for (int i = 0; i < 6; ++i) {
    made.step(1, "prefill");
    made.step(3);
  }
  const Result<HotKernels> all = made.find({.kernels = 2});
  ASSERT_TRUE(all);
  const Result<HotKernels> in = find_hot_kernels(made.trace, {.kernels = 2, .range = "decode_step"});
  ASSERT_TRUE(in);
  EXPECT_EQ(all->kernels[1].calls, 24);
  EXPECT_EQ(in->kernels[1].calls, 18);
  EXPECT_LE(in->launch_skip, all->launch_skip);
}

TEST(HotKernels, ARangeThatIsNotThereIsAnErrorThatNamesOthers) {
  SteppedTrace made;
  made.step(1);
  const Result<HotKernels> hot = made.find({.kernels = 2, .range = "decode_stp"});
  ASSERT_FALSE(hot);
  EXPECT_NE(hot.error().advice.find("decode_step"), std::string::npos) << hot.error().text();
}

TEST(HotKernels, OfAProgramOnTheCpuThereIsNothingToProfile) {
  SteppedTrace made;
  for (int i = 0; i < 4; ++i) made.step(1);
  TraceBuilder(made.trace).add<Devices>({.device = 0, .kind = ProcessorKind::kCpu});
  const Result<HotKernels> hot = made.find({.kernels = 1});
  ASSERT_FALSE(hot);
  EXPECT_NE(hot.error().what.find("on the CPU"), std::string::npos);
}

TEST(HotKernels, MetricsFollowTheDeviceThatIsBusiest) {
  SteppedTrace made;
  for (int i = 0; i < 4; ++i) made.step(1);
  TraceBuilder(made.trace).add<Devices>({.device = 1, .compute_major = 12, .compute_minor = 0});
  TraceBuilder(made.trace).add<Devices>({.device = 0, .compute_major = 9, .compute_minor = 0});
  const Result<HotKernels> hot = made.find({.kernels = 1});
  ASSERT_TRUE(hot);
  EXPECT_EQ(hot->compute_major, 9);
}

TEST(HotKernels, NoKernelsIsAnError) {
  SteppedTrace made;
  EXPECT_FALSE(made.find({.kernels = 2}));
}

}  // namespace
}  // namespace llmprof
