// Steps replayed without what recording costs: recordings built with a known cost come back as they are without it.
#include <gtest/gtest.h>

#include "derive_trace_builder.h"
#include "replay_steps.h"

namespace llmprof::replay {
namespace {

constexpr int64_t kPlainLaunch = 4'000, kWake = 3'000;

// Of launches 2 us inside the call and 1 us beside it where they are seen to take 6 us, twice that where 12; of graphs
// 1 us a node; 300 ns between kernels and 200 ns between nodes.
RecorderCosts costs() {
  RecorderCosts out;
  out["launch_0k"] = {kPlainLaunch, 7'000, 6'000, 0, 0};
  out["launch_512k"] = {8'000, 14'000, 12'000, 0, 0};
  out["graph_32"] = {2'000, 34'000, 34'000, 0, 0};
  out["graph_256"] = {2'000, 258'000, 258'000, 0, 0};
  out["gpu_kernel"] = {1'600, 1'900, 0, 0, 0};
  out["gpu_node"] = {800, 1'000, 0, 0, 0};
  out["copy_in"] = {2'000, 3'000, 2'500, 0, 0};
  out["wait"] = {200, 600, 500, 0, 0};
  return out;
}

TEST(Undisturbed, ALaunchCostsMoreTheLongerItTook) {
  const RecorderCostModel model(costs());
  ASSERT_TRUE(model.known());
  EXPECT_DOUBLE_EQ(model.of_launch(6'000).inside, 2'000);
  EXPECT_DOUBLE_EQ(model.of_launch(6'000).beside, 1'000);
  EXPECT_DOUBLE_EQ(model.of_launch(9'000).inside, 3'000);
  EXPECT_DOUBLE_EQ(model.of_launch(3'000).inside, 1'000);
  EXPECT_DOUBLE_EQ(model.of_launch(500'000).inside, 4'000);  // the rest is a wait for room in the queue
  EXPECT_DOUBLE_EQ(model.of_graph_launch(112'000, 110, true).inside, 110'000);
  EXPECT_DOUBLE_EQ(model.of_graph_launch(80'000, 110, true).inside, 78'000);
  EXPECT_DOUBLE_EQ(model.of_graph_launch(900'000, 110, true).inside, 110'000);
  EXPECT_DOUBLE_EQ(model.of_graph_launch(900'000, 110, false).inside, 898'000) << "it waited for nothing";
  EXPECT_DOUBLE_EQ(model.of_graph_launch(1'000, 110, true).inside, 0);
}

// One process of the measurement was slower than the other.
TEST(Undisturbed, WhereALongerCallSeemedToCostLessBothCostTheirMeanByWhatIsKnownOfThem) {
  RecorderCosts slow = costs();
  slow["launch_512k"].spread_ns = 1'000;
  slow["launch_2048k"] = {16'000, 15'000, 13'000, 0, 3'000};
  const RecorderCostModel model(slow);
  EXPECT_DOUBLE_EQ(model.of_launch(6'000).inside, 2'000);
  EXPECT_DOUBLE_EQ(model.of_launch(12'500).inside, 0.9 * 4'000);
  EXPECT_DOUBLE_EQ(model.of_launch(500'000).inside, 0.9 * 4'000);
  EXPECT_DOUBLE_EQ(model.of_launch(12'500).beside, 0.9 * 2'000);
}

TEST(Undisturbed, IsUnknownWithoutMeasurements) {
  EXPECT_FALSE(RecorderCostModel(RecorderCosts()).known());
  RecorderCosts half = costs();
  half.erase("gpu_node");
  EXPECT_FALSE(RecorderCostModel(half).known());
}

// A step of so many launches with a wait, as the host and the GPU make it: what a call costs, what lies between two and
// between two kernels.
int64_t step(TestTrace* b, int64_t host, int launches, int64_t call_ns, int64_t between_ns, int64_t kernel_ns,
             int64_t gap_ns, int64_t wait_ns) {
  const int64_t begin = host;
  int64_t gpu = -1'000'000'000;
  for (int i = 0; i < launches; ++i) {
    const int64_t start = std::max(host + call_ns + 500, gpu + gap_ns);
    const uint64_t id = b->api("cuLaunchKernel", host, call_ns);
    b->gpu("gemm", start, kernel_ns, id);
    gpu = start + kernel_ns;
    host += call_ns + between_ns;
  }
  const int64_t returned = std::max(host + wait_ns, gpu + kWake);
  b->api("cudaStreamSynchronize", host, returned - host);
  b->annotation("decode", begin, returned - begin);
  return returned + 5'000;
}

struct Expected {
  double within, slowed;
};
// That the eight steps recorded `with` the recorder, so many times slower at least, come back as those `without` it.
void expect_as_alone(TestTrace* with, TestTrace* without, const RecorderCosts& known, Expected expected) {
  const std::vector<StepTime> recorded = replay_steps(with->derive_all(), &known);
  const std::vector<StepTime> plain = replay_steps(without->derive_all());
  ASSERT_EQ(recorded.size(), 8U);
  ASSERT_EQ(plain.size(), 8U);
  for (size_t i = 1; i < recorded.size(); ++i) {
    ASSERT_TRUE(recorded[i].undisturbed_ns.has_value());
    const double want = static_cast<double>(plain[i].recorded_ns);
    EXPECT_NEAR(static_cast<double>(*recorded[i].undisturbed_ns), want, expected.within * want);
    EXPECT_GT(static_cast<double>(recorded[i].recorded_ns), expected.slowed * want);
  }
}

TEST(Undisturbed, StepsComeBackAsTheyAreWithoutTheRecorder) {
  const RecorderCosts known = costs();
  for (const bool host_bound : {true, false}) {
    const int64_t kernel = host_bound ? 1'000 : 30'000;
    TestTrace with, without;
    int64_t host = 0, alone = 0;
    for (int s = 0; s < 8; ++s) {
      host = step(&with, host, 60, 6'000, 5'000 + 1'000, kernel, 1'300, 500);
      alone = step(&without, alone, 60, kPlainLaunch, 5'000, kernel, 1'000, 200);
    }
    SCOPED_TRACE(host_bound);
    expect_as_alone(&with, &without, known, {.within = 0.01, .slowed = host_bound ? 1.25 : 1.005});
  }
}

// Recorded, the host goes on later behind what it waits for, by what the whole of a launch and its wait, or of a copy
// that waits for itself, costs beside their calls.
TEST(Undisturbed, WaitsThatWakeLater) {
  RecorderCosts known = costs();
  known["launch_wait"] = {15'000, 15'000 + 3'000 + 1'600, 0, 0, 0};   // of which 3,000 are the launch's
  known["copy_out"] = {7'000, 7'000 + 1'000 + 400 + 2'500, 0, 0, 0};  // the copy's call, a wait for nothing, the rest
  const RecorderCostModel model(known);
  EXPECT_DOUBLE_EQ(model.wakes_later_ns(Awaited::kOwn), 2'500);
  EXPECT_DOUBLE_EQ(model.wakes_later_ns(Awaited::kThread), 1'500) << "100 ns of the wait's lie before it";
  EXPECT_DOUBLE_EQ(RecorderCostModel(costs()).wakes_later_ns(Awaited::kOwn), 0);
  for (const bool copies : {true, false}) {
    const auto run = [&](bool recorded) {
      const auto more = [&](int64_t ns) { return recorded ? ns : 0; };
      TestTrace b;
      int64_t host = 0;
      for (int s = 0; s < 8; ++s) {
        const int64_t begin = host;
        for (int item = 0; item < 16; ++item) {
          const int64_t called = kPlainLaunch + more(2'000);
          host += more(1'000);
          const uint64_t launch = b.api("cuLaunchKernel", host, called);
          int64_t gpu = host + called + 500;
          b.gpu("gemm", gpu, 20'000, launch);
          gpu += 20'000;
          host += called + 2'000;
          if (copies) {
            host += more(500);
            const int64_t done = gpu + 1'000 + 800 + more(300), returned = done + kWake + more(2'500);
            const uint64_t copy = b.api("cudaMemcpy", host, returned - host);
            b.gpu("Memcpy DtoH (Device -> Pageable)", done - 800, 800, copy);
            host = returned + 2'000;
          } else {
            host += more(100);
            const int64_t returned = gpu + kWake + more(1'500);
            b.api("cudaStreamSynchronize", host, returned - host);
            host = returned + 2'000;
          }
        }
        b.annotation("decode", begin, host - 1'000 - begin);
      }
      return b;
    };
    TestTrace with = run(true), without = run(false);
    SCOPED_TRACE(copies);
    expect_as_alone(&with, &without, known, {.within = 0.003, .slowed = 1.1});
  }
}

// Recorded, the launch of a graph takes a microsecond a node before the GPU begins, or three where the program's caches
// are cold, and its nodes lie further apart.
TEST(Undisturbed, GraphsThatAreWaitedFor) {
  const RecorderCosts known = costs();
  const auto run = [](int64_t call_ns, int64_t gap_ns) {
    TestTrace b;
    int64_t host = 0;
    for (int s = 0; s < 6; ++s) {
      const int64_t begin = host;
      const uint64_t launch = b.api("cuGraphLaunch", host, call_ns);
      int64_t gpu = host + call_ns + 2'000;
      for (int node = 1; node <= 100; ++node) {
        b.node_kernel("gemm", gpu, 5'000, launch, static_cast<uint64_t>(node));
        gpu += 5'000 + gap_ns;
      }
      const int64_t returned = gpu - gap_ns + kWake;
      b.api("cudaStreamSynchronize", host + call_ns + 500, returned - host - call_ns - 500);
      b.annotation("decode", begin, returned - begin);
      host = returned + 10'000;
    }
    return b;
  };
  TestTrace without = run(2'000, 800);
  const std::vector<StepTime> plain = replay_steps(without.derive_all());
  for (const int64_t call_ns : {102'000, 302'000}) {
    TestTrace with = run(call_ns, 1'000);
    const std::vector<StepTime> recorded = replay_steps(with.derive_all(), &known);
    ASSERT_EQ(recorded.size(), 6U);
    for (size_t i = 1; i < recorded.size(); ++i) {
      ASSERT_TRUE(recorded[i].undisturbed_ns.has_value());
      EXPECT_NEAR(static_cast<double>(*recorded[i].undisturbed_ns), static_cast<double>(plain[i].recorded_ns), 1'500);
      EXPECT_GT(recorded[i].recorded_ns, plain[i].recorded_ns + call_ns + 13'000);
    }
  }
}

// A second thread's kernels run all the time, the last of them until just before the wait for the graph returns, and it
// copies to the host as the steps do. Neither ends a step: without the recorder the graph ends long before, and a
// step's copy is asked for before the one of the second thread that it was behind.
TEST(Undisturbed, AStepDoesNotWaitForAnotherThreadThatItIsFasterThan) {
  const RecorderCosts known = costs();
  const auto run = [](int64_t call_ns, int64_t gap_ns, int64_t copy_ns) {
    TestTrace b;
    const ThreadId second = b.thread();
    const StreamId beside = b.stream(0, 9);
    int64_t host = 0;
    for (int s = 0; s < 8; ++s) {
      const int64_t begin = host;
      b.gpu("Memcpy HtoD (Pinned -> Device)", host + copy_ns + 500, 1'000, b.api("cudaMemcpyAsync", host, copy_ns));
      host += copy_ns + 500;
      b.api("cudaStreamSynchronize", host, 1'000 + kWake);
      host += 1'000 + kWake + 2'000;
      const uint64_t launch = b.api("cuGraphLaunch", host, call_ns);
      int64_t gpu = host + call_ns + 2'000;
      for (int node = 1; node <= 100; ++node) {
        b.node_kernel("gemm", gpu, 5'000, launch, static_cast<uint64_t>(node));
        gpu += 5'000 + gap_ns;
      }
      host += call_ns + 500;
      const int64_t returned = gpu - gap_ns + kWake;
      b.api("cudaStreamSynchronize", host, returned - host);
      b.annotation("decode", begin, returned - begin);
      host = returned + 10'000;
    }
    for (int64_t at = 1'000; at + 60'000 < host; at += 50'000) {
      b.gpu("Memcpy HtoD (Pinned -> Device)", at + 2'500, 1'000, b.api("cudaMemcpyAsync", at, 2'000, 0, second),
            beside);
      const int64_t launched = at + 20'000;
      b.gpu("norm", launched + kPlainLaunch + 500, 25'000, b.api("cuLaunchKernel", launched, kPlainLaunch, 0, second),
            beside);
    }
    return b;
  };
  TestTrace without = run(2'000, 800, 2'000), with = run(302'000, 1'000, 2'500);
  const std::vector<StepTime> plain = replay_steps(without.derive_all());
  const std::vector<StepTime> recorded = replay_steps(with.derive_all(), &known);
  ASSERT_EQ(recorded.size(), 8U);
  for (size_t i = 1; i < recorded.size(); ++i) {
    ASSERT_TRUE(recorded[i].undisturbed_ns.has_value());
    EXPECT_NEAR(static_cast<double>(*recorded[i].undisturbed_ns), static_cast<double>(plain[i].recorded_ns), 6'000)
        << i;
    EXPECT_NEAR(recorded[i].error_frac(), 0, 0.002);
    EXPECT_GT(recorded[i].recorded_ns, plain[i].recorded_ns + 300'000);
  }
}

// Graphs of twelve small nodes with a kernel behind each. Recorded, launching one takes longer than the GPU needs for
// it, so that the GPU waits at each edge and the recording does not show how far apart they lie; the program alone is
// as fast as the GPU is.
// Where the GPU is behind, the recording shows the edges, of which those before graphs are longer for being recorded.
TEST(Undisturbed, EdgesOfGraphsThatTheRecordingDoesNotShow) {
  constexpr int64_t kNode = 1'200, kEdge = 1'100, kLater = 1'700;
  RecorderCosts known = costs();
  known["gpu_kernel"].seen_ns = 1'300, known["gpu_node"].seen_ns = 400;
  // 1,000 between kernels and 200 between nodes alone; of the kernel of 600 ns that was timed one lies in each turn.
  constexpr int64_t kTurn = 600 + 8 * 600 + 7 * 200 + 2 * kEdge;
  known["gpu_graph"] = {kTurn, kTurn + 300 + 8 * 200 + kLater, 0, 0, 0};
  EXPECT_DOUBLE_EQ(RecorderCostModel(known).graph_edge_ns(), kEdge);
  EXPECT_DOUBLE_EQ(RecorderCostModel(costs()).graph_edge_ns(), 0);
  EXPECT_DOUBLE_EQ(RecorderCostModel(known).graph_begins_later_ns(), kLater);
  EXPECT_DOUBLE_EQ(RecorderCostModel(costs()).graph_begins_later_ns(), 0);
  const auto run = [&](int64_t call_ns, int64_t launch_ns, int64_t node_gap_ns, int64_t later_ns) {
    TestTrace b;
    int64_t host = 0;
    for (int s = 0; s < 6; ++s) {
      const int64_t begin = host;
      int64_t gpu = -1'000'000;
      for (int graph = 0; graph < 20; ++graph) {
        const uint64_t launch = b.api("cuGraphLaunch", host, call_ns);
        gpu = std::max(host + call_ns + 2'000, gpu + kEdge + later_ns);
        for (int node = 1; node <= 12; ++node) {
          b.node_kernel("small", gpu, kNode, launch, static_cast<uint64_t>(node));
          gpu += kNode + (node < 12 ? node_gap_ns : 0);
        }
        host += call_ns + 1'000;
        const uint64_t id = b.api("cuLaunchKernel", host, launch_ns);
        gpu = std::max(host + launch_ns + 2'000, gpu + kEdge);
        b.gpu("behind", gpu, kNode, id);
        gpu += kNode;
        host += launch_ns + 1'000;
      }
      const int64_t returned = gpu + kWake;
      b.api("cudaStreamSynchronize", host, returned - host);
      b.annotation("decode", begin, returned - begin);
      host = returned + 10'000;
    }
    return b;
  };
  TestTrace without = run(2'000, kPlainLaunch, 200, 0);
  const std::vector<StepTime> plain = replay_steps(without.derive_all());
  for (const int64_t call_ns : {2'000 + 12'000 + 18'000, 5'000}) {
    TestTrace with = run(call_ns, 7'000, 400, kLater);
    const std::vector<StepTime> recorded = replay_steps(with.derive_all(), &known);
    ASSERT_EQ(recorded.size(), 6U);
    for (size_t i = 1; i < recorded.size(); ++i) {
      ASSERT_TRUE(recorded[i].undisturbed_ns.has_value());
      const double want = static_cast<double>(plain[i].recorded_ns);
      EXPECT_NEAR(static_cast<double>(*recorded[i].undisturbed_ns), want, 0.02 * want) << call_ns;
      EXPECT_GT(static_cast<double>(recorded[i].recorded_ns), (call_ns > 30'000 ? 1.5 : 1.15) * want);
    }
  }
}

TEST(Undisturbed, CallsMayCostMoreHereThanWhereTheyWereMeasured) {
  const RecorderCostModel model(costs(), 1.5);
  EXPECT_DOUBLE_EQ(model.of_launch(6'000).inside, 3'000);
  EXPECT_DOUBLE_EQ(model.of_launch(6'000).beside, 1'500);
  EXPECT_DOUBLE_EQ(model.of_copy().inside + model.of_copy().beside, 1'500);
  EXPECT_DOUBLE_EQ(model.of_wait().inside + model.of_wait().beside, 600);
  EXPECT_DOUBLE_EQ(model.kernel_gap_ns(), 300) << "the GPU is not the program";
  EXPECT_DOUBLE_EQ(model.of_graph_launch(80'000, 110, true).inside, 78'000);
}

}  // namespace
}  // namespace llmprof::replay
