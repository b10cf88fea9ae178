#include "replay_steps.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "base/statistics.h"
#include "derive_trace_builder.h"
#include "import/importer.h"

namespace llmprof::replay {
namespace {

int64_t part(const StepTime& step, PathPart of) { return step.path_ns[static_cast<size_t>(of)]; }
int64_t work(const StepTime& step) { return std::accumulate(step.work_ns.begin(), step.work_ns.end(), int64_t{0}); }
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
    EXPECT_EQ(step.work_ns[static_cast<size_t>(Category::kGemm)], 50 * 30'000);
    EXPECT_EQ(work(step), 50 * 30'000);
    EXPECT_NEAR(static_cast<double>(part(step, PathPart::kGpuGap)), 49 * kGapNs, 2);
    EXPECT_EQ(part(step, PathPart::kLaunchLatency), kLaunchNs);
    EXPECT_EQ(part(step, PathPart::kWakeUp), kWakeNs);
    EXPECT_EQ(part(step, PathPart::kHostCode), 20'000);
  }
}

// The pieces of a path are those of its sums, in order, and lie on what was recorded.
TEST(Replay, PiecesOfAPathLieWhereTheyWereRecorded) {
  for (const bool host_bound : {true, false}) {
    TestTrace b = host_bound ? steps(6, 50, 10'000, 2'000) : steps(6, 50, 6'000, 30'000);
    const Trace& trace = b.derive_all();
    const StepReplay replay(trace);
    const std::vector<StepTime> found = replay.as_recorded();
    const std::vector<StepId> asked = {StepId(4), StepId(2)};
    const std::vector<std::vector<PathSegment>> paths = replay.paths(asked);
    ASSERT_EQ(paths.size(), 2U);
    for (size_t i = 0; i < asked.size(); ++i) {
      const StepTime& step = found[asked[i]];
      ASSERT_FALSE(paths[i].empty());
      EXPECT_EQ(paths[i].front().start_ns, trace.steps.start_ns[asked[i]]);
      EXPECT_EQ(paths[i].back().end_ns, trace.steps.end_ns[asked[i]]);
      std::array<int64_t, kPathParts> sums{};
      int64_t until = paths[i].front().start_ns;
      for (const PathSegment& piece : paths[i]) {
        EXPECT_EQ(piece.start_ns, until);
        until = piece.end_ns;
        sums[static_cast<size_t>(piece.part)] += piece.end_ns - piece.start_ns;
        if (piece.part != PathPart::kGpuWork) continue;
        EXPECT_EQ(piece.start_ns, trace.gpu_ops.start_ns[piece.op]);
        EXPECT_EQ(piece.end_ns, trace.end_of(piece.op));
      }
      for (size_t p = 0; p < kPathParts; ++p) EXPECT_LE(std::abs(sums[p] - step.path_ns[p]), 2) << p;
    }
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
    const size_t last = timeline.trace.api_calls.size() - 1;
    const int64_t saved = before.call_end_ns[last] - after.call_end_ns[last];
    EXPECT_EQ(saved, host_bound ? 6 * 50 * 1'000 : 0);
  }
}

// Values are those of the recording until one is changed, which leaves the recording and every other copy alone.
TEST(Replay, ChangesAreOfTheirOwn) {
  const std::vector<int64_t> recorded{10, 20, 30};
  Changeable<int64_t> first(recorded);
  const Changeable<int64_t> unchanged = first;
  first[1] = 25;
  Changeable<int64_t> second = first;
  second[2] = 35;
  EXPECT_EQ(recorded, (std::vector<int64_t>{10, 20, 30}));
  EXPECT_EQ(std::vector<int64_t>(first.begin(), first.end()), (std::vector<int64_t>{10, 25, 30}));
  EXPECT_EQ(std::vector<int64_t>(second.begin(), second.end()), (std::vector<int64_t>{10, 25, 35}));
  EXPECT_EQ(unchanged[1], 20);
  Changeable<uint8_t> flags(size_t{2});
  const Changeable<uint8_t> none = flags;
  flags[1] = 1;
  EXPECT_EQ(flags[0] + 10 * flags[1] + 100 * none[1], 10);
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

// Every fifth launch the GPU stands still in the middle of the graph, each time before another node: that is the
// latency of none of them, and steps without it come back as they were.
TEST(Replay, AGpuThatStandsStillNowAndThenIsNoLatency) {
  constexpr int kSteps = 30;
  TestTrace b;
  int64_t host = 0;
  for (int s = 0; s < kSteps; ++s) {
    const int64_t begin = host;
    const uint64_t launch = b.api("cudaGraphLaunch", host, kCallNs);
    int64_t gpu = host + kLaunchNs;
    for (int node = 1; node <= 40; ++node) {
      if (s % 5 == 2 && node == 2 + s / 2) gpu += 150'000;
      b.node_kernel("gemm", gpu, 2'000, launch, static_cast<uint64_t>(node));
      gpu += 2'000 + (node < 40 ? 400 + 32 * ((s + node) % 2) : 0);
    }
    b.api("cudaStreamSynchronize", host + 6'000, gpu + kWakeNs - host - 6'000);
    b.annotation("decode", begin, gpu + kWakeNs - begin);
    host = gpu + kWakeNs + 10'000;
  }
  const std::vector<StepTime> found = replay_steps(b.derive_all());
  ASSERT_EQ(found.size(), static_cast<size_t>(kSteps));
  for (const StepTime& step : found) {
    if (step.recorded_ns > 150'000 + 40 * 2'000) {
      EXPECT_NEAR(static_cast<double>(step.replayed_ns - step.recorded_ns), -150'000, 700) << "not explained";
    } else {
      EXPECT_NEAR(static_cast<double>(step.replayed_ns), static_cast<double>(step.recorded_ns), 700);
    }
  }
}

// For spells of some launches all nodes lie further apart; steps beside them are of the same spell.
TEST(Replay, AGraphMayChangeItsPace) {
  TestTrace b;
  int64_t host = 0;
  for (int s = 0; s < 24; ++s) {
    const int64_t begin = host, gap = s / 8 == 1 ? 450 : 100;
    const uint64_t launch = b.api("cuGraphLaunch", host, kCallNs);
    int64_t gpu = host + kCallNs + 2'000;
    for (int node = 1; node <= 100; ++node) {
      b.node_kernel("gemm", gpu, 4'000, launch, static_cast<uint64_t>(node));
      gpu += 4'000 + gap + node % 7;
    }
    const int64_t returned = gpu + kWakeNs;
    b.api("cudaStreamSynchronize", host + kCallNs + 500, returned - host - kCallNs - 500);
    b.annotation("decode", begin, returned - begin);
    host = returned + 10'000;
  }
  const std::vector<StepTime> found = replay_steps(b.derive_all());
  ASSERT_EQ(found.size(), 24U);
  for (size_t i = 1; i < found.size(); ++i) {
    if (i % 8 == 0 || i % 8 == 7) continue;
    EXPECT_LT(std::fabs(found[i].error_frac()), 0.002) << i;
  }
}

// Of two graphs the first one's nodes begin soon after the call does, the other's when 85 % of it are over: calls take
// their time with each node, now more of it, now less.
TEST(Replay, EachGraphBeginsInItsOwnWay) {
  TestTrace b;
  int64_t host = 0;
  for (int s = 0; s < 24; ++s) {
    const int64_t call = 1'000'000 + 50'000 * (s / 2 * 7 % 10), begin = host;
    const bool soon = s % 2 == 0;
    const uint64_t launch = b.api("cuGraphLaunch", host, call);
    int64_t gpu = host + (soon ? 90'000 : call * 85 / 100);
    const int nodes = soon ? 100 : 50;
    for (int node = 1; node <= nodes; ++node) {
      b.node_kernel("gemm", gpu, 20'000, launch, static_cast<uint64_t>(node + (soon ? 0 : 1'000)));
      gpu += 20'000 + 100;
    }
    const int64_t returned = gpu - 100 + kWakeNs;
    b.api("cudaStreamSynchronize", host + call + 500, returned - host - call - 500);
    b.annotation(soon ? "vision" : "decode", begin, returned - begin);
    host = returned + 10'000;
  }
  const std::vector<StepTime> found = replay_steps(b.derive_all());
  ASSERT_EQ(found.size(), 24U);
  for (size_t i = 2; i < found.size(); ++i) EXPECT_LT(std::fabs(found[i].error_frac()), 0.002) << i;
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

// ---- streams, events, edges --------------------------------------------------------------------------------------

// A trace replayed as it was and again after something was changed.
struct Twice {
  Twice(const Trace& recording, const std::function<void(const Timeline&, Durations&)>& change)
      : timeline(recording),
        latencies(fit(
            timeline, [](GpuOpId) { return true; }, [](ApiCallId) { return true; })),
        before(recording),
        after(recording) {
    const std::vector<Stretch> all{{recording.steps.host_start_ns[0], recording.steps.end_ns.back() + 1}};
    Durations durations(timeline);
    before = run(timeline, durations, latencies, all);
    change(timeline, durations);
    after = run(timeline, durations, latencies, all);
  }
  int64_t end_moved() const {
    const size_t last = timeline.trace.api_calls.size() - 1;
    return after.call_end_ns[last] - before.call_end_ns[last];
  }

  Timeline timeline;
  Latencies latencies;
  Replayed before, after;
};

std::string_view name_of(const Trace& trace, GpuOpId op) { return trace.text(trace.gpu_ops.name[op]); }

void shorten(const Timeline& timeline, Durations& durations, std::string_view kernel, int64_t by_ns) {
  for (Row op = 0; op < durations.op_ns.size(); ++op)
    if (name_of(timeline.trace, op) == kernel) durations.op_ns[op] -= by_ns;
}

constexpr int64_t kJoinNs = 2'000;
constexpr uint64_t kEvent = 0x7f0000001000;

// A kernel on one stream, one on another that an event holds back, and a wait for the second stream.
TestTrace two_streams(int count, bool recorded) {
  TestTrace b;
  const StreamId side = b.stream(0, 13);
  int64_t host = 0;
  for (int s = 0; s < count; ++s) {
    const int64_t begin = host;
    b.gpu("gemm_first", host + kLaunchNs, 100'000, b.api("cudaLaunchKernel", host, kCallNs));
    b.api("cudaEventRecord", host + 6'000, 1'000);
    if (recorded) b.names(0, kEvent);
    b.api("cudaStreamWaitEvent", host + 8'000, 1'000);
    if (recorded) b.names(side, kEvent);
    const int64_t second = host + kLaunchNs + 100'000 + kJoinNs;
    b.gpu("gemm_second", second, 50'000, b.api("cudaLaunchKernel", host + 10'000, kCallNs), side);
    const int64_t returned = second + 50'000 + kWakeNs;
    b.api("cudaStreamSynchronize", host + 16'000, returned - host - 16'000);
    if (recorded) b.names(side);
    b.annotation("decode", begin, returned - begin);
    host = returned + 20'000;
  }
  return b;
}

TEST(Replay, AStreamThatWaitsForAnEventFollowsTheOther) {
  TestTrace b = two_streams(6, true);
  const Trace& trace = b.derive_all();
  EXPECT_EQ(lacking(trace), "");
  const std::vector<StepTime> found = replay_steps(trace);
  ASSERT_EQ(found.size(), 6U);
  for (size_t i = 1; i < found.size(); ++i) {
    EXPECT_EQ(found[i].replayed_ns, found[i].recorded_ns);
    EXPECT_EQ(part(found[i], PathPart::kGpuWork), 150'000);
    EXPECT_EQ(part(found[i], PathPart::kGpuGap), kJoinNs);
    EXPECT_EQ(part(found[i], PathPart::kLaunchLatency), kLaunchNs);
    EXPECT_EQ(part(found[i], PathPart::kWakeUp), kWakeNs);
    EXPECT_EQ(sum(found[i]), found[i].replayed_ns);
  }
  const Twice twice(trace, [](const Timeline& timeline, Durations& d) { shorten(timeline, d, "gemm_first", 40'000); });
  EXPECT_EQ(twice.latencies.joined.ns, kJoinNs);
  EXPECT_EQ(twice.end_moved(), -6 * 40'000) << "the second begins earlier, and so does the wait end";
}

TEST(Replay, WhatIsNotRecordedIsSaid) {
  TestTrace b = two_streams(6, false);
  EXPECT_EQ(lacking(b.derive_all()), "which stream or event a call waits for, which event a stream waits for");
  TestTrace graph;
  const uint64_t launch = graph.api("cudaGraphLaunch", 0, kCallNs);
  graph.node_kernel("gemm", 5'000, 1'000, launch, 1);
  graph.node_kernel("gemm", 7'000, 1'000, launch, 2);
  EXPECT_EQ(lacking(graph.derive_all()), "which nodes of a CUDA graph follow which");
}

// The long kernel of the other stream is waited for by nobody until the end.
TEST(Replay, AWaitForOneStreamLeavesTheOtherAlone) {
  TestTrace b;
  const StreamId side = b.stream(0, 13);
  int64_t host = 0;
  for (int s = 0; s < 6; ++s) {
    const int64_t begin = host;
    b.gpu("gemm_long", host + kLaunchNs, 200'000, b.api("cudaLaunchKernel", host, kCallNs), side);
    b.gpu("gemm_short", host + 10'000 + kLaunchNs, 20'000, b.api("cudaLaunchKernel", host + 10'000, kCallNs));
    const int64_t woken = host + 10'000 + kLaunchNs + 20'000 + kWakeNs;
    b.api(s % 2 == 0 ? "cudaStreamSynchronize" : "cudaEventSynchronize", host + 16'000, woken - host - 16'000);
    b.names(s % 2 == 0 ? StreamId(0) : StreamId(), s % 2 == 0 ? 0 : kEvent);
    if (s % 2 != 0) {
      b.api("cudaEventRecord", host + 15'000, 500);
      b.names(0, kEvent);
    }
    b.gpu("gemm_next", woken + 1'000 + kLaunchNs, 10'000, b.api("cudaLaunchKernel", woken + 1'000, kCallNs));
    const int64_t returned = host + kLaunchNs + 200'000 + kWakeNs;
    b.api("cudaDeviceSynchronize", woken + 8'000, returned - woken - 8'000);
    b.annotation("decode", begin, returned - begin);
    host = returned + 20'000;
  }
  const Trace& trace = b.derive_all();
  for (const StepTime& step : replay_steps(trace)) EXPECT_EQ(step.replayed_ns, step.recorded_ns);
  const Twice twice(trace, [](const Timeline& timeline, Durations& d) { shorten(timeline, d, "gemm_short", 15'000); });
  EXPECT_EQ(twice.end_moved(), 0) << "the long one is the path";
  for (Row op = 0; op < trace.gpu_ops.size(); ++op)
    EXPECT_EQ(twice.after.op_start_ns[op] - twice.before.op_start_ns[op],
              name_of(trace, op) == "gemm_next" ? -15'000 : 0)
        << name_of(trace, op);
}

TEST(Replay, WhatAnEventStandsForIsWhatItWasRecordedOnLast) {
  TestTrace b;
  const StreamId side = b.stream(0, 13);
  constexpr uint64_t kOther = kEvent + 0x80;
  b.api("cudaEventSynchronize", 0, 1'000);  // recorded before all this
  b.names(StreamId(), kEvent);
  b.gpu("gemm_a", 5'000, 1'000, b.api("cudaLaunchKernel", 2'000, 1'000));
  b.gpu("gemm_b", 15'000, 1'000, b.api("cudaLaunchKernel", 4'000, 1'000), side);
  b.api("cudaEventRecord", 6'000, 500);
  b.names(0, kEvent);
  b.api("cudaEventSynchronize", 7'000, 500);
  b.names(StreamId(), kEvent);
  b.api("cudaEventRecord", 8'000, 500);
  b.names(side, kEvent);
  b.api("cudaEventSynchronize", 9'000, 9'000);
  b.names(StreamId(), kEvent);
  b.api("cudaEventRecord", 20'000, 500);  // on a stream that is not known
  b.names(StreamId(), kOther);
  b.api("cudaEventSynchronize", 21'000, 500);
  b.names(StreamId(), kOther);
  const Timeline timeline(b.derive_all());
  const auto awaits = [&](ApiCallId call) {
    std::string names;
    for (const GpuOpId op : timeline.awaits.of(call)) names += name_of(timeline.trace, op);
    return names;
  };
  EXPECT_EQ(timeline.awaited[0], Awaited::kEvent);
  EXPECT_EQ(awaits(0), "");
  EXPECT_EQ(awaits(4), "gemm_a");
  EXPECT_EQ(awaits(6), "gemm_b");
  EXPECT_EQ(timeline.awaited[8], Awaited::kThread) << "who knows";
}

// 1, then 2 (long) and 3 (short, on another stream) side by side, then 4; an event's node stands before 4.
TEST(Replay, NodesOfAGraphFollowItsEdgesNotTheOrderSeen) {
  TestTrace b;
  const StreamId side = b.stream(0, 13);
  for (const auto& [node, after] :
       std::vector<std::pair<uint64_t, uint64_t>>{{1, 0}, {2, 1}, {3, 1}, {4, 9}, {9, 2}, {9, 3}})
    b.graph_edge(node, after);
  int64_t host = 0;
  for (int s = 0; s < 6; ++s) {
    const int64_t begin = host;
    const uint64_t launch = b.api("cudaGraphLaunch", host, kCallNs);
    b.names(0);
    const int64_t gpu = host + kLaunchNs;
    b.node_kernel("gemm_1", gpu, 10'000, launch, 1);
    b.node_kernel("gemm_2", gpu + 11'000, 50'000, launch, 2);
    b.node_kernel("gemm_3", gpu + 11'500, 20'000, launch, 3, side);
    b.node_kernel("gemm_4", gpu + 61'800, 10'000, launch, 4);
    const int64_t returned = gpu + 71'800 + kWakeNs;
    b.api("cudaStreamSynchronize", host + 6'000, returned - host - 6'000);
    b.names(0);
    b.annotation("decode", begin, returned - begin);
    host = returned + 20'000;
  }
  const Trace& trace = b.derive_all();
  EXPECT_EQ(lacking(trace), "");
  for (const StepTime& step : replay_steps(trace)) EXPECT_EQ(step.replayed_ns, step.recorded_ns);
  // Without its long branch the graph waits for the other, of which nothing was seen but its end.
  const Twice twice(trace, [](const Timeline& timeline, Durations& d) { shorten(timeline, d, "gemm_2", 45'000); });
  const int64_t usual = static_cast<int64_t>(twice.latencies.behind[3][3].ns);
  for (Row op = 0; op < trace.gpu_ops.size(); ++op)
    if (name_of(trace, op) == "gemm_4") {
      EXPECT_EQ(twice.after.op_start_ns[op] - twice.after.op_end_ns(op - 1), usual) << "follows 3";
      EXPECT_EQ(name_of(trace, twice.after.behind[op]), "gemm_3");
    }
}

// A graph with two ends, one of them on a stream of its own: what comes next on the stream of its launch follows both.
TEST(Replay, WhatComesAfterAGraphFollowsAllOfIt) {
  TestTrace b;
  const StreamId side = b.stream(0, 13);
  for (const auto& [node, after] : std::vector<std::pair<uint64_t, uint64_t>>{{1, 0}, {2, 1}, {3, 1}})
    b.graph_edge(node, after);
  const uint64_t launch = b.api("cudaGraphLaunch", 0, kCallNs);
  b.names(0);
  b.node_kernel("gemm_1", 5'000, 10'000, launch, 1);
  b.node_kernel("gemm_2", 16'000, 50'000, launch, 2, side);
  b.node_kernel("gemm_3", 16'000, 20'000, launch, 3);
  b.gpu("gemm_next", 70'000, 1'000, b.api("cudaLaunchKernel", 6'000, kCallNs));
  const Timeline timeline(b.derive_all());
  const GpuOpId next = 3;
  ASSERT_EQ(name_of(timeline.trace, next), "gemm_next");
  EXPECT_EQ(name_of(timeline.trace, timeline.on_stream[next]), "gemm_3");
  ASSERT_EQ(timeline.joined.of(next).size(), 1U);
  EXPECT_EQ(name_of(timeline.trace, timeline.joined.of(next)[0]), "gemm_2");
}

TEST(Replay, FreeingMemoryWaitsForTheDevice) {
  TestTrace b;
  int64_t host = 0;
  for (int s = 0; s < 6; ++s) {
    const int64_t begin = host, own = 30'000 + 1'000 * s;
    b.gpu("gemm", host + kLaunchNs, 100'000, b.api("cudaLaunchKernel", host, kCallNs));
    const int64_t freed = host + kLaunchNs + 100'000 + own;
    b.api("cudaFree", host + 6'000, freed - host - 6'000);
    b.gpu("gemm_last", freed + 1'000 + kLaunchNs, 10'000, b.api("cudaLaunchKernel", freed + 1'000, kCallNs));
    const int64_t returned = freed + 1'000 + kLaunchNs + 10'000 + kWakeNs;
    b.api("cudaDeviceSynchronize", freed + 7'000, returned - freed - 7'000);
    b.annotation("decode", begin, returned - begin);
    host = returned + 20'000;
  }
  const Trace& trace = b.derive_all();
  const std::vector<StepTime> found = replay_steps(trace);
  for (size_t i = 1; i < found.size(); ++i) {
    EXPECT_EQ(found[i].replayed_ns, found[i].recorded_ns);
    EXPECT_EQ(part(found[i], PathPart::kCudaCalls), 30'000 + 1'000 * static_cast<int64_t>(i));
    EXPECT_EQ(part(found[i], PathPart::kWakeUp), kWakeNs);
  }
  const Twice twice(trace, [](const Timeline& timeline, Durations& d) { shorten(timeline, d, "gemm", 40'000); });
  EXPECT_EQ(twice.end_moved(), -6 * 40'000);
}

// Where a thread makes no call while another begins and ends its own, the first may have waited for the second.
TEST(Replay, TimeThatMayBeAWaitForAnotherThreadIsUnexplained) {
  for (const bool runs_in : {false, true}) {
    TestTrace b;
    const ThreadId other = b.thread();
    int64_t host = 0;
    for (int s = 0; s < 6; ++s) {
      const int64_t begin = host;
      b.gpu("gemm", host + kLaunchNs, 1'000, b.api("cudaLaunchKernel", host, kCallNs));
      // In the 100 us between this call and the next; or one more that the first call does not end before.
      if (runs_in) b.api("cudaMemGetInfo", host + 4'000, 2'000, 0, other);
      b.api("cudaMemGetInfo", host + 25'000, 10'000, 0, other);
      b.api("cudaMemGetInfo", host + 45'000, 40'000, 0, other);
      b.gpu("gemm", host + 105'000 + kLaunchNs, 1'000, b.api("cudaLaunchKernel", host + 105'000, kCallNs));
      const int64_t returned = host + 112'000;
      b.api("cudaDeviceSynchronize", host + 111'000, 1'000);
      b.annotation("decode", begin, returned - begin);
      host = returned + 20'000;
    }
    const std::vector<StepTime> found = replay_steps(b.derive_all());
    ASSERT_EQ(found.size(), 6U);
    for (size_t i = 1; i < found.size(); ++i) {
      EXPECT_EQ(found[i].replayed_ns, found[i].recorded_ns);
      EXPECT_EQ(part(found[i], PathPart::kUnexplained), runs_in ? 0 : 60'000);
      EXPECT_EQ(sum(found[i]), found[i].replayed_ns);
    }
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

// Kept as differences of 32 bits until one does not fit: what is read is what was set, in either form.
TEST(Replay, MomentsAreKeptHoweverFarTheyAreMoved) {
  const std::vector<int64_t> start = {100, 200, 1'000'000'000'000}, dur = {7, 8, 9};
  Moments moments(start, &dur);
  for (size_t row = 0; row < start.size(); ++row) EXPECT_EQ(moments[row], start[row] + dur[row]);
  moments.set(1, 208 + int64_t{INT32_MAX});
  moments.set(0, 107 + int64_t{INT32_MIN});
  EXPECT_EQ(moments[0], 107 + int64_t{INT32_MIN});
  EXPECT_EQ(moments[1], 208 + int64_t{INT32_MAX});
  moments.set(2, kNever);
  EXPECT_EQ(moments[0], 107 + int64_t{INT32_MIN});
  EXPECT_EQ(moments[1], 208 + int64_t{INT32_MAX});
  EXPECT_EQ(moments[2], kNever);
  moments.set(1, 208 + int64_t{INT32_MAX} + 1);
  EXPECT_EQ(moments[1], 208 + int64_t{INT32_MAX} + 1);
}

}  // namespace
}  // namespace llmprof::replay
