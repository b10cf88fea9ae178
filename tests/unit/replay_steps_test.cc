#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "base/statistics.h"
#include "derive_trace_builder.h"
#include "import/importer.h"
#include "replay/replay.h"

namespace llmprof::replay {
namespace {

int64_t part(const StepTime& step, PathPart of) { return step.path_ns[static_cast<size_t>(of)]; }
int64_t sum(const StepTime& step) { return std::accumulate(step.path_ns.begin(), step.path_ns.end(), int64_t{0}); }

constexpr int64_t kLaunchNs = 4'000, kCallNs = 5'000, kWakeNs = 3'000, kGapNs = 1'000;

// Steps "decode" of so many launches, `apart_ns` from call to call, that the host waits for: each start is exactly its
// latest predecessor and the latencies above.
TestTrace steps(int count, int launches, int64_t apart_ns, int64_t kernel_ns) {
  TestTrace b;
  int64_t host = 0, gpu = -1'000'000;
  for (int s = 0; s < count; ++s) {
    const int64_t begin = host;
    for (int i = 0; i < launches; ++i) {
      gpu = std::max(host + kLaunchNs, gpu + kGapNs);
      b.gpu("gemm", gpu, kernel_ns, b.api("cudaLaunchKernel", host, kCallNs));
      gpu += kernel_ns;
      host += apart_ns;
    }
    const int64_t returned = std::max(host, gpu) + kWakeNs;
    b.api("cudaStreamSynchronize", host, returned - host);
    b.annotation("decode", begin, returned - begin);
    host = returned + 20'000;
  }
  return b;
}

TEST(Replay, AHostThatLaunchesSlowlyIsThePath) {
  TestTrace b = steps(6, 50, 10'000, 2'000);
  const std::vector<StepTime> found = replay_steps(b.derive_all());
  ASSERT_EQ(found.size(), 6U);
  for (size_t i = 1; i < found.size(); ++i) {
    const StepTime& step = found[i];
    EXPECT_EQ(step.replayed_ns, step.recorded_ns);
    EXPECT_EQ(sum(step), step.replayed_ns);
    EXPECT_EQ(part(step, PathPart::kGpuWork), 0);
    EXPECT_EQ(part(step, PathPart::kCudaCalls) + part(step, PathPart::kHostCode), step.recorded_ns);
  }
}

TEST(Replay, AGpuThatIsBehindIsThePath) {
  TestTrace b = steps(6, 50, 6'000, 30'000);
  const std::vector<StepTime> found = replay_steps(b.derive_all());
  ASSERT_EQ(found.size(), 6U);
  for (size_t i = 1; i < found.size(); ++i) {
    const StepTime& step = found[i];
    EXPECT_NEAR(static_cast<double>(step.replayed_ns), static_cast<double>(step.recorded_ns), 2);
    EXPECT_EQ(part(step, PathPart::kGpuWork), 50 * 30'000);
    EXPECT_NEAR(static_cast<double>(part(step, PathPart::kGpuGap)), 49 * kGapNs, 2);
    EXPECT_EQ(part(step, PathPart::kLaunchLatency), kLaunchNs);
    EXPECT_EQ(part(step, PathPart::kWakeUp), kWakeNs);
    EXPECT_EQ(part(step, PathPart::kHostCode), 20'000);
  }
}

// What changes is carried on: a host that is faster by x in each of its calls makes a host-bound step faster by as much
// and leaves a GPU-bound one alone.
TEST(Replay, ChangesMoveWhatDependsOnThem) {
  for (const bool host_bound : {true, false}) {
    TestTrace b = host_bound ? steps(6, 50, 10'000, 2'000) : steps(6, 50, 6'000, 30'000);
    const Trace& trace = b.derive_all();
    const Timeline timeline(trace);
    const Latencies latencies = fit(
        timeline, [](GpuOpId) { return true; }, [](ApiCallId) { return true; });
    const std::vector<Stretch> all{{trace.steps.host_start_ns[0], trace.steps.end_ns[5]}};
    Durations durations(timeline);
    const Replayed before = run(timeline, durations, latencies, all);
    for (Row call = 0; call < trace.api_calls.size(); ++call)
      if (timeline.awaited[call] == Awaited::kNothing) durations.call_ns[call] -= 1'000;
    const Replayed after = run(timeline, durations, latencies, all);
    const int64_t saved = before.call_end_ns.back() - after.call_end_ns.back();
    EXPECT_EQ(saved, host_bound ? 6 * 50 * 1'000 : 0);
  }
}

// A graph is launched once; its nodes follow each other, also by latencies that differ from edge to edge.
TEST(Replay, NodesOfAGraphFollowEachOther) {
  TestTrace b;
  int64_t host = 0;
  const auto pause = [](int node) { return 300 + 100 * (node % 7); };
  for (int s = 0; s < 6; ++s) {
    const int64_t begin = host;
    const uint64_t launch = b.api("cudaGraphLaunch", host, kCallNs);
    int64_t gpu = host + kLaunchNs;
    for (int node = 1; node <= 40; ++node) {
      b.node_kernel("gemm", gpu, 2'000 + 10 * s, launch, static_cast<uint64_t>(node));
      gpu += 2'000 + 10 * s + pause(node);
    }
    gpu -= pause(40);
    b.api("cudaStreamSynchronize", host + 6'000, gpu + kWakeNs - host - 6'000);
    b.annotation("decode", begin, gpu + kWakeNs - begin);
    host = gpu + kWakeNs + 10'000;
  }
  const std::vector<StepTime> found = replay_steps(b.derive_all());
  ASSERT_EQ(found.size(), 6U);
  for (size_t i = 1; i < found.size(); ++i) {
    EXPECT_NEAR(static_cast<double>(found[i].replayed_ns), static_cast<double>(found[i].recorded_ns), 40);
    EXPECT_EQ(part(found[i], PathPart::kGpuWork), 40 * (2'000 + 10 * static_cast<int64_t>(i)));
    EXPECT_EQ(sum(found[i]), found[i].replayed_ns);
  }
}

TEST(Replay, ADriverCallInARuntimeCallIsNotAnotherCall) {
  TestTrace b;
  int64_t host = 0;
  for (int s = 0; s < 4; ++s) {
    const int64_t begin = host;
    for (int i = 0; i < 10; ++i) {
      b.api("cudaLaunchKernel", host, 9'000);
      b.gpu("gemm", host + 6'000, 1'000, b.api("cuLaunchKernel", host + 1'000, kCallNs));
      host += 12'000;
    }
    b.api("cudaStreamSynchronize", host, 2'000);
    host += 2'000;
    b.annotation("decode", begin, host - begin);
  }
  for (const StepTime& step : replay_steps(b.derive_all())) {
    EXPECT_EQ(step.replayed_ns, step.recorded_ns);
    EXPECT_EQ(sum(step), step.replayed_ns);
  }
}

TEST(Replay, NothingToReplay) {
  Trace empty;
  ASSERT_TRUE(derive(empty));
  EXPECT_TRUE(replay_steps(empty).empty());
  TestTrace b;
  b.annotation("decode", 0, 100);
  b.gpu("gemm", 10, 20);  // of no known launch
  for (const StepTime& step : replay_steps(b.derive_all())) EXPECT_EQ(sum(step), step.replayed_ns);
}

// Real programs, recorded by torch.profiler: steps that no latency was learned from come back as they were recorded.
TEST(Replay, RealStepsComeBack) {
  const std::string folder = LLMPROF_TEST_DATA "/golden/inputs/";
  std::vector<double> errors;
  for (const char* name : {"batched", "compiled", "fp32_weights", "item_per_step", "kineto_llama-3.1-8b_unlabelled",
                           "kineto_qwen2.5-0.5b_annotated", "kineto_qwen2.5-0.5b_cuda_graph",
                           "kineto_qwen2.5-0.5b_memory_stack", "mixture_of_experts", "pipeline_two_gpus",
                           "serving_annotations", "tensor_parallel_rank0", "unfused_attention", "vision_language"}) {
    Result<Trace> trace = import_files({folder + name + ".json.gz"});
    ASSERT_TRUE(trace) << name;
    ASSERT_TRUE(derive(*trace)) << name;
    size_t judged = 0;
    for (const StepTime& step : replay_steps(*trace)) {
      EXPECT_EQ(sum(step), step.replayed_ns) << name;
      if (step.learned) continue;
      ++judged;
      errors.push_back(std::fabs(step.error_frac()));
      EXPECT_LT(errors.back(), 0.02) << name << " step " << static_cast<Row>(step.step);
    }
    EXPECT_GE(judged, 1U) << name;
  }
  EXPECT_LT(median_of(errors), 0.005);
}

}  // namespace
}  // namespace llmprof::replay
