#include <gtest/gtest.h>

#include <map>
#include <random>

#include "derive_trace_builder.h"

namespace llmprof {
namespace {

int64_t idle_ns(const Trace& trace, IdleCause cause) {
  int64_t sum = 0;
  for (size_t i = 0; i < trace.gaps.size(); ++i) sum += trace.gaps.cause[i] == cause ? trace.gaps.dur_ns[i] : 0;
  return sum;
}

TEST(Idle, EveryCauseOfOneGap) {
  TestTrace b;
  b.gpu("first", 0, 100, b.api("cudaLaunchKernel", -20, 10));
  b.api("cudaDeviceSynchronize", 50, 70);          // until 120: the GPU is done at 100
  b.python("model.py(3): forward", 115, 300);      // host work until the operator
  const uint64_t op = b.op("aten::mm", 150, 100);  // 150..250
  b.api("cudaMalloc", 160, 10, op);                // 160..170
  b.api("cudaFuncSetAttribute", 180, 5, op);       // 180..185
  b.overhead("Activity Buffer Request", 190, 10);  // 190..200, on no thread in particular
  b.gpu("second", 260, 40, b.api("cudaLaunchKernel", 210, 20, op));
  Trace& trace = b.derive_all();
  EXPECT_EQ(broken_invariant(trace), "");
  ASSERT_TRUE(trace.steps.empty());
  EXPECT_EQ(idle_ns(trace, IdleCause::kBlockingSync), 20);
  EXPECT_EQ(idle_ns(trace, IdleCause::kHostWork), 30);
  EXPECT_EQ(idle_ns(trace, IdleCause::kAllocator), 10);
  EXPECT_EQ(idle_ns(trace, IdleCause::kOtherApi), 5);
  EXPECT_EQ(idle_ns(trace, IdleCause::kProfiler), 10);
  EXPECT_EQ(idle_ns(trace, IdleCause::kLaunchCall), 20);
  EXPECT_EQ(idle_ns(trace, IdleCause::kLaunchLatency), 30);
  EXPECT_EQ(idle_ns(trace, IdleCause::kOperatorDispatch), 10 + 10 + 5 + 10);
  for (size_t i = 0; i < trace.gaps.size(); ++i) {
    if (trace.gaps.cause[i] == IdleCause::kOperatorDispatch) {
      ASSERT_NE(trace.gaps.op[i], kNoRow);
      EXPECT_EQ(trace.text(trace.ops.name[trace.gaps.op[i]]), "aten::mm");
    }
    if (trace.gaps.cause[i] == IdleCause::kHostWork) {
      ASSERT_NE(trace.gaps.python[i], kNoRow);
    }
    if (trace.gaps.cause[i] == IdleCause::kAllocator) {
      EXPECT_EQ(trace.text(trace.api_calls.name[trace.gaps.api[i]]), "cudaMalloc");
    }
    EXPECT_EQ(trace.gpu_ops.start_ns[trace.gaps.next_gpu_op[i]], 260);
  }
}

TEST(Idle, TheFunctionThatFillsMostOfAGapIsNamed) {
  TestTrace b;
  b.gpu("first", 0, 100, b.api("cudaLaunchKernel", -20, 10));
  b.python("serve.py(1): loop", 0, 5000);
  b.python("serve.py(9): request", 90, 3000);   // open when the gap begins, longer than it
  b.python("text.py(3): tokenize", 120, 1700);  // begins a little later, ends a little earlier
  b.python("text.py(20): merge", 300, 100);     // one of many short ones inside
  b.gpu("second", 2010, 40, b.api("cudaLaunchKernel", 2000, 5));
  Trace& trace = b.derive_all();
  EXPECT_EQ(broken_invariant(trace), "");
  Row work = 0;
  while (work < trace.gaps.size() && trace.gaps.cause[work] != IdleCause::kHostWork) ++work;
  ASSERT_LT(work, trace.gaps.size());
  ASSERT_NE(trace.gaps.python[work], kNoRow);
  EXPECT_EQ(trace.text(trace.python_calls.name[trace.gaps.python[work]]), "text.py(3): tokenize");
}

TEST(Idle, HostThatRanAheadLeavesOnlyLatency) {
  TestTrace b;
  b.gpu("a", 100, 50, b.api("cudaLaunchKernel", 0, 5));
  b.gpu("b", 152, 50, b.api("cudaLaunchKernel", 10, 5));
  b.op("aten::unrelated", 140, 100);
  Trace& trace = b.derive_all();
  ASSERT_EQ(trace.gaps.size(), 1U);
  EXPECT_EQ(trace.gaps.cause[0], IdleCause::kLaunchLatency);
  EXPECT_EQ(trace.gaps.dur_ns[0], 2);
}

TEST(Idle, NodesOfOneGraph) {
  TestTrace b;
  const uint64_t graph = b.api("cudaGraphLaunch", 0, 30);
  b.gpu("n1", 20, 10, graph);
  b.gpu("n2", 33, 10, graph);
  b.gpu("n3", 45, 10, graph);
  Trace& trace = b.derive_all();
  ASSERT_EQ(trace.gaps.size(), 2U);
  EXPECT_EQ(idle_ns(trace, IdleCause::kGraphInternal), 5);
}

TEST(Idle, BlockingCopyAndPageableCopy) {
  TestTrace b;
  b.gpu("a", 0, 10, b.api("cudaLaunchKernel", -10, 5));
  b.gpu("Memcpy DtoH (Device -> Pageable)", 40, 5, b.api("cudaMemcpyAsync", 20, 50));
  b.gpu("Memcpy DtoD (Device -> Device)", 100, 5, b.api("cudaMemcpyAsync", 80, 10));
  Trace& trace = b.derive_all();
  // 10..20 host work, 20..40 and 45..70 in the pageable copy, 70..80 host work, 80..90 in the call, 90..100 latency.
  EXPECT_EQ(idle_ns(trace, IdleCause::kCopy), 45);
  EXPECT_EQ(idle_ns(trace, IdleCause::kHostWork), 20);
  EXPECT_EQ(idle_ns(trace, IdleCause::kLaunchCall), 10);
  EXPECT_EQ(idle_ns(trace, IdleCause::kLaunchLatency), 10);
  EXPECT_EQ(broken_invariant(trace), "");
}

TEST(Idle, ThreadOfTheLaunchIsJudged) {
  TestTrace b;
  const Row other = b.thread();
  b.gpu("a", 0, 10, b.api("cudaLaunchKernel", -10, 5));
  b.op("aten::waiting", 5, 500);  // main thread
  b.op("aten::busy", 12, 80, {}, other);
  b.gpu("b", 100, 10, b.api("cudaLaunchKernel", 80, 10, 0, other));
  Trace& trace = b.derive_all();
  EXPECT_EQ(idle_ns(trace, IdleCause::kHostWork), 2);
  EXPECT_EQ(idle_ns(trace, IdleCause::kOperatorDispatch), 68);
  EXPECT_EQ(broken_invariant(trace), "");
}

TEST(Idle, UnlinkedActivityIsUnknown) {
  TestTrace b;
  b.gpu("a", 0, 10);
  b.gpu("b", 30, 10);
  Trace& trace = b.derive_all();
  ASSERT_EQ(trace.gaps.size(), 1U);
  EXPECT_EQ(trace.gaps.cause[0], IdleCause::kUnknown);
}

TEST(Idle, OutsideStepsIsNoWork) {
  TestTrace b;
  b.annotation("prefill", 0, 100);
  b.launch("gemm", 10, 20, 60);
  b.annotation("prefill", 1000, 100);
  b.launch("gemm", 1010, 1020, 60);
  Trace& trace = b.derive_all();
  ASSERT_EQ(trace.steps.size(), 2U);
  EXPECT_EQ(idle_ns(trace, IdleCause::kNoWork), 1000 - 80);
  EXPECT_EQ(broken_invariant(trace), "");
}

TEST(Idle, WrapperDoesNotHideTheOperator) {
  TestTrace b;
  b.gpu("a", 0, 10, b.api("cudaLaunchKernel", -10, 5));
  b.op("Torch-Compiled Region: 0/0", 10, 90);
  b.op("aten::linear", 20, 70);
  const uint64_t inner = b.op("aten::mm", 40, 40);
  b.gpu("b", 80, 10, b.api("cudaLaunchKernel", 60, 5, inner));
  Trace& trace = b.derive_all();
  std::map<std::string, int64_t> by_op;
  for (size_t i = 0; i < trace.gaps.size(); ++i) {
    if (trace.gaps.op[i] != kNoRow)
      by_op[std::string(trace.text(trace.ops.name[trace.gaps.op[i]]))] += trace.gaps.dur_ns[i];
  }
  EXPECT_EQ(by_op["Torch-Compiled Region: 0/0"], 10);
  EXPECT_EQ(by_op["aten::linear"], 60);
  EXPECT_EQ(by_op.count("aten::mm"), 0U);
}

// Random traces: whatever the host and the GPU did, the pieces fill the windows exactly.
TEST(Idle, ConservationOnRandomTraces) {
  for (uint32_t seed = 0; seed < 60; ++seed) {
    std::mt19937 random(seed);
    const auto up_to = [&](uint32_t n) { return static_cast<int64_t>(random() % n); };
    TestTrace b;
    const Row thread = b.thread();
    const Row side = b.stream(0, 8);
    const Row device = b.stream(1, 7);
    int64_t host = 0, free_at = 0;
    for (int i = 0; i < 400; ++i) {
      host += up_to(30);
      const Row on = random() % 5 == 0 ? thread : 0;
      const uint64_t op = b.op(random() % 4 == 0 ? "wrapper" : "aten::op", host, up_to(40), {}, on);
      if (random() % 50 == 0) {
        b.api("cudaStreamSynchronize", host, std::max<int64_t>(0, free_at - host) + up_to(10), 0, on);
        host = std::max(host, free_at);
      }
      if (random() % 20 == 0) b.overhead("flush", host, up_to(100), random() % 2 == 0 ? kNoRow : on);
      if (random() % 60 == 0) b.annotation(random() % 2 == 0 ? "decode" : "prefill", host, up_to(2000));
      if (random() % 70 == 0) b.annotation("decode_step", host + up_to(20), up_to(200), AnnotationKind::kUser, on);
      const uint64_t call = random() % 12 == 0 ? 0 : b.api("cudaLaunchKernel", host + up_to(8), up_to(12), op, on);
      const char* name = random() % 9 == 0 ? "argmax" : random() % 2 == 0 ? "gemm" : "norm";
      free_at = std::max(free_at, host + up_to(60));
      b.gpu(name, free_at, up_to(40), call, random() % 6 == 0 ? side : random() % 6 == 0 ? device : 0);
      free_at += up_to(50);
    }
    Trace& trace = b.derive_all();
    ASSERT_EQ(broken_invariant(trace), "") << "seed " << seed;
    for (size_t i = 0; i < trace.gpu_ops.size(); ++i) {
      ASSERT_TRUE(trace.gpu_links.step[i] == kNoRow || trace.gpu_links.step[i] < trace.steps.size());
    }
  }
}

// Long enough for several workers: the same rows as one worker finds.
TEST(Idle, PartsJoinWithoutSeams) {
  TestTrace b;
  int64_t time = 0;
  for (int i = 0; i < 40000; ++i) {
    const uint64_t op = b.op("aten::op", time, 90);
    b.launch(i % 10 == 0 ? "gemm" : "norm", time + 20, time + 50, 30, op);
    time += 100;
  }
  DeriveOptions options;
  options.detect_stages = false;
  Trace& trace = b.derive_all(options);
  ASSERT_EQ(trace.windows.size(), 1U);
  int64_t covered = 0, end = trace.windows[0].start_ns;
  for (size_t i = 0; i < trace.gaps.size(); ++i) {
    ASSERT_GE(trace.gaps.start_ns[i], end);
    end = trace.gaps.start_ns[i] + trace.gaps.dur_ns[i];
    covered += trace.gaps.dur_ns[i];
  }
  EXPECT_EQ(covered, 39999 * 70);
  EXPECT_EQ(idle_ns(trace, IdleCause::kOperatorDispatch), 39999 * 30);
  EXPECT_EQ(idle_ns(trace, IdleCause::kHostWork), 39999 * 10);
  EXPECT_EQ(idle_ns(trace, IdleCause::kLaunchCall), 39999 * 5);
  EXPECT_EQ(idle_ns(trace, IdleCause::kLaunchLatency), 39999 * 25);
}

}  // namespace
}  // namespace llmprof
