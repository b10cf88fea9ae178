// One thread that runs the model on several GPUs.
#include <gtest/gtest.h>

#include "several_streams.h"

namespace llmprof {
namespace {

TEST(JointPasses, LayersOfTwoGpusAreOneStepOnBoth) {
  TestTrace b = Relay{.ranges = false}.made();
  const Trace& trace = b.derive_all();
  const Steps& steps = trace.steps;
  constexpr size_t kPasses = size_t{Relay::kLots} * Relay::kSteps;
  ASSERT_EQ(steps.size(), 2 * kPasses);
  for (Row s = 0; s < steps.size(); s += 2) {
    const Row other = s + 1;
    EXPECT_EQ(steps.pass[s], s);
    EXPECT_EQ(steps.pass[other], s);
    EXPECT_NE(steps.device[s], steps.device[other]);
    EXPECT_EQ(steps.start_ns[s], steps.start_ns[other]);
    EXPECT_EQ(steps.end_ns[s], steps.end_ns[other]);
    EXPECT_EQ(steps.sync_ns[s], steps.sync_ns[other]);
    // Both halves lie in it: twenty kernels of 60 us each.
    EXPECT_GE(steps.end_ns[s] - steps.start_ns[s], 2 * Relay::kKernels * 60'000);
    if (s > 0) {
      EXPECT_GE(steps.start_ns[s], steps.end_ns[s - 1]) << "one after the other";
    }
  }
  for (Row op = 0; op < trace.gpu_ops.size(); ++op)
    if (trace.text(trace.gpu_ops.name[op]) == "gemm") {
      ASSERT_NE(trace.gpu_links.step[op], kNoRow);
      EXPECT_EQ(steps.device[trace.gpu_links.step[op]], trace.device_of(op));
    }
}

TEST(JointPasses, AHostThatRunsAheadHasAPassInEachWindow) {
  TestTrace b = Relay{.waited = 0, .ranges = false}.made();
  const Steps& steps = b.derive_all().steps;
  ASSERT_EQ(steps.size(), size_t{2 * Relay::kLots * Relay::kSteps});
  for (Row s = 2; s < steps.size(); s += 2) {
    EXPECT_EQ(steps.pass[s], s);
    EXPECT_GE(steps.start_ns[s], steps.end_ns[s - 1]);
    // Halves of successive lots overlap: a lot of one question takes one half's time more than the one before.
    if ((s / 2) % Relay::kLots != 0) {
      EXPECT_NEAR(static_cast<double>(steps.end_ns[s] - steps.start_ns[s]), Relay::kKernels * 61e3, 2e5);
    }
  }
}

// A model on each GPU, asked in turn: passes stay on one.
TEST(JointPasses, ReplicasAreNotJoined) {
  TestTrace b;
  const StreamId streams[] = {StreamId(0), b.stream(1, 7)};
  int64_t host = 0;
  for (int request = 0; request < 12; ++request) {
    const StreamId stream = streams[request % 2];
    int64_t gpu = host + 4'000;
    for (int i = 0; i <= 20; ++i) {
      const uint64_t id = b.api("cudaLaunchKernel", host, 5'000);
      b.gpu(i < 20 ? "gemm" : "argmax", gpu, 60'000, id, stream);
      gpu = std::max(gpu + 61'000, host + 11'000);
      host += 7'000;
    }
    b.api("cudaDeviceSynchronize", host, gpu + 3'000 - host);
    host = gpu + 20'000;
  }
  const Steps& steps = b.derive_all().steps;
  ASSERT_EQ(steps.size(), 12U);
  for (Row s = 0; s < steps.size(); ++s) EXPECT_EQ(steps.pass[s], kNoRow);
}

}  // namespace
}  // namespace llmprof
