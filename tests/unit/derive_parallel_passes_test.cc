// A batch that is decoded in parts, each by a graph on a stream of its own.
#include <gtest/gtest.h>

#include "derive_trace_builder.h"

namespace llmprof {
namespace {

constexpr int kPartSteps = 12, kPartLayers = 10;
constexpr int64_t kPartKernel = 50'000;

struct Parts {
  bool apart = true;    // the second on a stream of its own
  bool waited = false;  // for each part before the next one is launched
  int steps = kPartSteps;
  TestTrace b = {};
  int64_t ends[kPartSteps] = {};  // of the last wait of each step

  // Products on 16 rows and attention, ten layers of them.
  int64_t pass(int64_t host, int64_t gpu, uint64_t first_node, StreamId stream) {
    const uint64_t id = b.api("cudaGraphLaunch", host, 20'000);
    int64_t at = std::max(gpu, host + 25'000);
    for (int i = 0; i < 2 * kPartLayers; ++i, at += kPartKernel + 1'000)
      b.node_kernel(i % 2 == 0 ? "gemm" : "flash_fwd_kernel", at, kPartKernel, id,
                    first_node + static_cast<uint64_t>(i), stream);
    b.node_kernel("argmax", at, 5'000, id, first_node + 2 * kPartLayers, stream);
    return at + 6'000;
  }
  // Returns when the host goes on.
  int64_t read(int64_t host, int64_t gpu, StreamId stream) {
    const int64_t at = std::max(gpu, host + 8'000);
    b.gpu("Memcpy DtoH (Device -> Pageable)", at, 2'000, b.api("cudaMemcpyAsync", host, at + 10'000 - host), stream);
    return at + 12'000;
  }
  const Trace& made() {
    const StreamId second = apart ? b.stream(0, 9) : StreamId(0);
    for (uint64_t first : {uint64_t{100}, uint64_t{200}})
      for (int i = 0; i < kPartLayers; ++i)
        b.graph_node(first + static_cast<uint64_t>(2 * i), b.library_call(1'000 * i, 500, 16, 4096, 4096));
    int64_t host = 1'000'000;
    for (int step = 0; step < steps; ++step) {
      const int64_t a = pass(host, 0, 100, 0);
      if (waited) host = read(host + 22'000, a, 0);
      const int64_t c = pass(host + 22'000, apart ? 0 : a, 200, second);
      if (!waited) host = read(host + 50'000, a, 0);
      ends[step] = host = read(host, c, second);
      host += 30'000;
    }
    b.level(0, host + 1'000'000, RecordingLevel::kDefault);
    return b.derive_all();
  }
};

TEST(ParallelPasses, PartsOfABatchOnTheirStreamsAreOneStep) {
  Parts parts;
  const Trace& trace = parts.made();
  const Steps& steps = trace.steps;
  ASSERT_EQ(steps.size(), size_t{kPartSteps});
  for (Row s = 0; s < steps.size(); ++s) {
    EXPECT_EQ(steps.kind[s], StageKind::kDecode);
    EXPECT_EQ(steps.new_tokens[s], 32) << "16 of each part";
    EXPECT_EQ(steps.sequences[s], 32);
    if (s > 0) {
      EXPECT_GE(steps.start_ns[s], steps.end_ns[s - 1]);
    }
  }
  // The copy of each part is of the step whose tokens it brings, and the step goes on until the last wait. (What comes
  // behind the last step is not known to be its.)
  std::vector<int> copies(steps.size());
  for (Row op = 0; op < trace.gpu_ops.size(); ++op)
    if (trace.gpu_ops.kind[op] == GpuOpKind::kMemcpy && trace.gpu_links.step[op] != kNoRow)
      ++copies[trace.gpu_links.step[op]];
  for (Row s = 0; s + 1 < steps.size(); ++s) {
    EXPECT_EQ(copies[s], 2) << s;
    EXPECT_NEAR(static_cast<double>(steps.end_ns[s]), static_cast<double>(parts.ends[s]), 15e3) << s;
  }
}

// Nothing follows whose copies could be another's.
TEST(ParallelPasses, OneStepAloneKeepsBothParts) {
  Parts parts{.steps = 1};
  const Trace& trace = parts.made();
  ASSERT_EQ(trace.steps.size(), 1U);
  size_t nodes = 0;
  for (Row op = 0; op < trace.gpu_ops.size(); ++op)
    nodes += trace.gpu_ops.kind[op] == GpuOpKind::kKernel && trace.gpu_links.step[op] == StepId(0) ? 1 : 0;
  EXPECT_EQ(nodes, size_t{2 * (2 * kPartLayers + 1)});
}

TEST(ParallelPasses, AHostThatRunsAheadOnOneStreamHasAStepForEachPass) {
  Parts parts{.apart = false};
  EXPECT_EQ(parts.made().steps.size(), size_t{2 * kPartSteps});
}

TEST(ParallelPasses, WhatIsWaitedForInBetweenIsAStepOfItsOwn) {
  Parts parts{.waited = true};
  const Steps& steps = parts.made().steps;
  ASSERT_EQ(steps.size(), size_t{2 * kPartSteps});
  for (Row s = 0; s < steps.size(); ++s) EXPECT_EQ(steps.new_tokens[s], 16);
}

}  // namespace
}  // namespace llmprof
