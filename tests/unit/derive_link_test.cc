#include <gtest/gtest.h>

#include <map>
#include <random>

#include "derive/derive.h"
#include "derive/id_index.h"
#include "derive_recording.h"

namespace llmprof {
namespace {

// Union of the operators of one thread, counted the slow way.
int64_t union_ns(const Trace& trace, Row thread) {
  std::vector<std::pair<int64_t, int64_t>> spans;
  for (size_t i = 0; i < trace.ops.size(); ++i) {
    if (trace.ops.thread[i] == thread)
      spans.emplace_back(trace.ops.start_ns[i], trace.ops.start_ns[i] + trace.ops.dur_ns[i]);
  }
  std::sort(spans.begin(), spans.end());
  int64_t total = 0, reached = std::numeric_limits<int64_t>::min();
  for (const std::pair<int64_t, int64_t>& span : spans) {
    const int64_t from = std::max(span.first, reached);
    if (span.second > from) total += span.second - from;
    reached = std::max(reached, span.second);
  }
  return total;
}

void expect_self_times_fill_threads(const Trace& trace) {
  ASSERT_EQ(trace.op_links.size(), trace.ops.size());
  std::map<Row, int64_t> self;
  for (size_t i = 0; i < trace.ops.size(); ++i) {
    EXPECT_GE(trace.op_links.self_ns[i], 0);
    self[trace.ops.thread[i]] += trace.op_links.self_ns[i];
  }
  for (const std::pair<const Row, int64_t>& thread : self) EXPECT_EQ(thread.second, union_ns(trace, thread.first));
}

TEST(Link, OperatorsNestAndSelfTimesAddUp) {
  Recording r;
  const Row linear = r.op(0, 100, "aten::linear");
  const Row transpose = r.op(10, 10, "aten::t");
  const Row mm = r.op(30, 60, "aten::mm");
  const Row inner = r.op(30, 60, "aten::empty");  // same interval: the row order decides
  const Row later = r.op(100, 5, "aten::add");
  link_launches(r.trace);
  const OpLinks& links = r.trace.op_links;
  EXPECT_EQ(links.parent[linear], kNoRow);
  EXPECT_EQ(links.parent[transpose], linear);
  EXPECT_EQ(links.parent[mm], linear);
  EXPECT_EQ(links.parent[inner], mm);
  EXPECT_EQ(links.parent[later], kNoRow);  // starts where linear ends
  EXPECT_EQ(links.self_ns[linear], 30);
  EXPECT_EQ(links.self_ns[mm], 0);
  EXPECT_EQ(links.self_ns[inner], 60);
  expect_self_times_fill_threads(r.trace);
}

TEST(Link, OverlapWithoutNestingIsCountedAndNotCountedTwice) {
  Recording r;
  const Row outer = r.op(0, 100000, "outer");
  const Row first = r.op(1000, 50000, "first");
  const Row second = r.op(20000, 60000, "second");
  const Row third = r.op(40000, 5000, "third");
  link_launches(r.trace);
  EXPECT_EQ(r.trace.diagnostics.count(DiagnosticId::kOverlapOnThread), 1U);
  EXPECT_EQ(r.trace.op_links.parent[first], outer);
  EXPECT_EQ(r.trace.op_links.parent[second], outer);  // first does not enclose it
  EXPECT_EQ(r.trace.op_links.parent[third], second);
  EXPECT_EQ(r.trace.op_links.self_ns[first], 19000);
  expect_self_times_fill_threads(r.trace);
}

TEST(Link, ChildThatOutlivesItsParentByRoundingStaysAChild) {
  Recording r;
  const Row parent = r.op(0, 10000, "parent");
  const Row child = r.op(2000, 8900, "child");  // ends 900 ns late
  link_launches(r.trace);
  EXPECT_EQ(r.trace.op_links.parent[child], parent);
  EXPECT_EQ(r.trace.diagnostics.count(DiagnosticId::kOverlapOnThread), 0U);
  expect_self_times_fill_threads(r.trace);
}

TEST(Link, SelfTimesFillTheUnionWhateverTheIntervals) {
  std::mt19937 random(7);
  for (int round = 0; round < 50; ++round) {
    Recording r;
    r.thread(1, 2);
    int64_t start = 0;
    for (int i = 0; i < 200; ++i) {
      start += static_cast<int64_t>(random() % 4) * 700;
      r.op(start, static_cast<int64_t>(random() % 9) * 1500, "op", 0, kNoRow, random() % 2);
    }
    // Ties longer first, as importers leave them.
    Ops& ops = r.trace.ops;
    std::vector<Row> order(ops.size());
    std::iota(order.begin(), order.end(), Row{0});
    std::stable_sort(order.begin(), order.end(), [&](Row a, Row b) {
      return ops.start_ns[a] != ops.start_ns[b] ? ops.start_ns[a] < ops.start_ns[b] : ops.dur_ns[a] > ops.dur_ns[b];
    });
    const Ops old = ops;
    for (size_t i = 0; i < order.size(); ++i) {
      ops.start_ns[i] = old.start_ns[order[i]];
      ops.dur_ns[i] = old.dur_ns[order[i]];
      ops.thread[i] = old.thread[order[i]];
    }
    link_launches(r.trace);
    expect_self_times_fill_threads(r.trace);
    for (size_t i = 0; i < ops.size(); ++i) {
      const Row parent = r.trace.op_links.parent[i];
      if (parent == kNoRow) continue;
      EXPECT_LT(parent, i);  // passes rely on parents coming first
      EXPECT_EQ(ops.thread[parent], ops.thread[i]);
    }
  }
}

TEST(Link, CallsFindTheirOperatorByIdentifierOrElseByTime) {
  Recording r;
  const Row other_thread = r.thread(1, 2);
  const Row linear = r.op(0, 100, "aten::linear", 1);
  const Row mm = r.op(20, 50, "aten::mm", 2);
  const Row elsewhere = r.op(20, 50, "aten::add", 3, kNoRow, other_thread);
  const Row by_id = r.call(30, 5, "cudaLaunchKernel", 10, 2);
  const Row by_outer_id = r.call(40, 5, "cudaLaunchKernel", 11, 1);
  const Row by_time = r.call(45, 5, "cudaLaunchKernel", 12, 0);
  const Row annotation_id = r.call(80, 5, "cudaLaunchKernel", 13, 99);
  const Row wrong_thread = r.call(85, 5, "cudaLaunchKernel", 14, 3);
  const Row outside = r.call(200, 5, "cudaDeviceSynchronize", 15, 0);
  link_launches(r.trace);
  const std::vector<OpId>& op = r.trace.api_links.op;
  EXPECT_EQ(op[by_id], mm);
  EXPECT_EQ(op[by_outer_id], linear);
  EXPECT_EQ(op[by_time], mm);
  EXPECT_EQ(op[annotation_id], linear);
  EXPECT_EQ(op[wrong_thread], linear);
  EXPECT_NE(op[wrong_thread], elsewhere);
  EXPECT_EQ(op[outside], kNoRow);
}

TEST(Link, AGraphLaunchOwnsEveryNode) {
  Recording r;
  r.op(0, 1000, "graph_replay", 5);
  const Row launch = r.call(10, 900, "cudaGraphLaunch", 7);
  for (int i = 0; i < 3000; ++i) r.gpu(100 + i * 10, 10, "nvjet_sm90", 7);
  link_launches(r.trace);
  for (size_t i = 0; i < 3000; ++i) {
    ASSERT_EQ(r.trace.gpu_links.api[i], launch);
    ASSERT_EQ(r.trace.gpu_links.op[i], 0U);
  }
  EXPECT_EQ(r.trace.diagnostics.count(DiagnosticId::kUnlinkedKernel), 0U);
  EXPECT_EQ(r.trace.diagnostics.count(DiagnosticId::kUnlinkedLaunch), 0U);
}

TEST(Link, LaunchesThatAreCapturedRunLater) {
  Recording r;
  r.call(0, 5, "cudaStreamBeginCapture_v10000", 1);
  r.call(10, 5, "cudaLaunchKernel", 2);
  r.call(20, 5, "cudaMemsetAsync", 3);
  r.call(30, 5, "cudaStreamEndCapture", 4);
  r.call(40, 5, "cudaLaunchKernel", 5);
  link_launches(r.trace);
  EXPECT_EQ(r.trace.diagnostics.count(DiagnosticId::kUnlinkedLaunch), 1U) << "the one after the capture";
}

TEST(Link, OneCorrelationOfSeveralCallsPrefersTheLaunch) {
  Recording r;
  r.call(0, 50, "cudaDeviceSynchronize", 4);
  const Row runtime = r.call(100, 50, "cudaLaunchKernelExC", 4);
  r.call(110, 30, "cuLaunchKernelEx", 4);  // the driver's half of the same launch
  const Row copy_call = r.call(200, 10, "cudaMemcpyAsync", 9);
  r.call(190, 5, "cudaLaunchKernel", 9);
  const Row kernel = r.gpu(180, 10, "k", 4);
  const Row copy = r.gpu(250, 10, "Memcpy HtoD", 9, 0, GpuOpKind::kMemcpy);
  link_launches(r.trace);
  EXPECT_EQ(r.trace.gpu_links.api[kernel], runtime);
  EXPECT_EQ(r.trace.gpu_links.api[copy], copy_call);
  // The launch under correlation 9 has no kernel of its own; the driver's half is not a launch without a kernel.
  EXPECT_EQ(r.trace.diagnostics.count(DiagnosticId::kUnlinkedLaunch), 1U);
}

TEST(Link, TwoProcessesWithTheSameCorrelationTakeTheClosestEarlierCall) {
  Recording r;
  const Row second = r.thread(2, 20);
  const Row early = r.call(0, 10, "cudaLaunchKernel", 1, 0, 0);
  const Row late = r.call(1000, 10, "cudaLaunchKernel", 1, 0, second);
  const Row first_kernel = r.gpu(50, 10, "k", 1);
  const Row second_kernel = r.gpu(1050, 10, "k", 1);
  link_launches(r.trace);
  EXPECT_EQ(r.trace.gpu_links.api[first_kernel], early);
  EXPECT_EQ(r.trace.gpu_links.api[second_kernel], late);
}

TEST(Link, AnActivityWithoutACallFindsItsOperatorByItsOwnIdentifier) {
  Recording r;
  const Row mm = r.op(0, 10, "aten::mm", 12);
  const Row known = r.gpu(20, 10, "k", 0, 12);
  const Row unknown = r.gpu(40, 10, "k", 77, 99);
  link_launches(r.trace);
  EXPECT_EQ(r.trace.gpu_links.op[known], mm);
  EXPECT_EQ(r.trace.gpu_links.op[unknown], kNoRow);
  EXPECT_EQ(r.trace.diagnostics.count(DiagnosticId::kUnlinkedKernel), 2U);
  EXPECT_EQ(r.trace.diagnostics.count(DiagnosticId::kNoOperatorForKernel), 1U);
}

TEST(Link, ClocksThatDisagreeAreCounted) {
  Recording r;
  r.call(100, 10, "cudaLaunchKernel", 1);
  r.gpu(90, 10, "k", 1);
  r.call(200, 10, "cudaLaunchKernel", 2);
  link_launches(r.trace);
  EXPECT_EQ(r.trace.diagnostics.count(DiagnosticId::kLaunchAfterKernel), 1U);
  EXPECT_EQ(r.trace.diagnostics.count(DiagnosticId::kUnlinkedLaunch), 1U);
  ASSERT_FALSE(r.trace.diagnostics.places(DiagnosticId::kUnlinkedLaunch).empty());
  EXPECT_EQ(r.trace.diagnostics.places(DiagnosticId::kUnlinkedLaunch)[0], "cudaLaunchKernel at 200 ns");
}

TEST(Link, AnEmptyTraceIsFine) {
  Trace trace;
  link_launches(trace);
  EXPECT_EQ(trace.gpu_links.size(), 0U);
  EXPECT_EQ(trace.diagnostics.total(), 0U);
}

TEST(IdIndex, DenseAndSparseAgree) {
  std::mt19937_64 random(3);
  for (const uint64_t spread : {uint64_t{300}, uint64_t{1} << 60}) {
    std::vector<uint64_t> ids(1000);
    for (uint64_t& id : ids) id = random() % spread;
    ids[17] = ids[900] = 12345;  // a repetition in both
    ids[5] = 0;
    const IdIndex index(ids);
    EXPECT_TRUE(index.repeats());
    EXPECT_EQ(index.first(0), kNoRow);
    for (size_t i = 0; i < ids.size(); ++i) {
      std::vector<Row> expected, found;
      for (size_t j = 0; j < ids.size(); ++j) {
        if (ids[i] != 0 && ids[j] == ids[i]) expected.push_back(static_cast<Row>(j));
      }
      for (Row row = index.first(ids[i]); row != kNoRow; row = index.next(row)) found.push_back(row);
      ASSERT_EQ(found, expected);
    }
  }
}

}  // namespace
}  // namespace llmprof
