// Counterfactuals against closed forms: programs of which each start is its latest predecessor and a latency, made with
// and without what is taken away. What is simulated on the one must be what the other takes.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "base/statistics.h"
#include "derive_trace_builder.h"
#include "replay/what_if.h"
#include "several_streams.h"

namespace llmprof::replay {
namespace {

// Steps of so many launches. The host waits at their end, and where it reads something back in between.
struct Simple {
  static constexpr int64_t kStartNs = 4'000, kInCallNs = 5'000, kReturnNs = 3'000, kApartNs = 1'000;
  static constexpr int kSteps = 8;
  int launches = 40;
  int64_t apart_ns = 10'000;  // from call to call
  int64_t kernel_ns = 2'000;
  int64_t copy_ns = 1'500;
  bool copied = true;     // what is read; else the host waits alone
  int reads = 0;          // within a step, each a copy to the host and a wait
  int64_t code_ns = 0;    // of the host in the middle of a step
  int64_t malloc_ns = 0;  // of an allocation in the middle of a step
  int64_t taken_ns = 0;   // by another program that gets the CPU in the middle of a step
  bool probes = false;    // at the end of each step: how long the thread waited for a CPU

  TestTrace made() const {
    TestTrace b;
    int64_t host = 0, gpu = -1'000'000;
    const auto wait = [&](int64_t more_ns) {
      const int64_t returned = std::max(host, gpu) + Simple::kReturnNs;
      b.api("cudaStreamSynchronize", host, returned - host);
      host = returned + more_ns;
    };
    for (int s = 0; s < kSteps; ++s) {
      const int64_t begin = host;
      for (int i = 0; i < launches; ++i) {
        gpu = std::max(host + Simple::kStartNs, gpu + Simple::kApartNs);
        b.gpu("gemm", gpu, kernel_ns, b.api("cudaLaunchKernel", host, Simple::kInCallNs));
        gpu += kernel_ns;
        host += apart_ns;
        if (reads > 0 && i % (launches / (reads + 1)) == 0 && i > 0 && i / (launches / (reads + 1)) <= reads) {
          if (copied) {
            host += 5'000;  // dispatch of what reads
            gpu = std::max(host + Simple::kStartNs, gpu + Simple::kApartNs);
            b.gpu("Memcpy DtoH (Device -> Pinned)", gpu, copy_ns, b.api("cudaMemcpyAsync", host, Simple::kInCallNs));
            gpu += copy_ns;
            host += Simple::kInCallNs;
          }
          wait(0);
        }
        if (i == launches / 2) {
          host += code_ns + taken_ns;
          if (malloc_ns > 0) b.api("cudaMalloc", host - 2'000, malloc_ns);
          host += malloc_ns;
        }
      }
      wait(0);
      if (probes)
        TraceBuilder(b.trace).add<HostPaces>(
            {.start_ns = host + 1'000, .dur_ns = 4'000, .thread = 0, .waited_ns = taken_ns});
      b.annotation("decode", begin, host - begin);
      host += 20'000;
    }
    return b;
  }
};

struct Simulated {
  double now_ns, then_ns;
  std::string forbidden;
};

// `first`: another change that is made before.
template <class Program>
Simulated simulate(const Program& program, std::string_view id, const RecorderCosts& costs = {},
                   std::string_view first = {}) {
  TestTrace b = program.made();
  const Trace& trace = b.derive_all();
  const StepReplay replay(trace);
  const RecorderCostModel model(costs);
  const Recording recording(replay, model);
  const WhatIf* const what_if = find_what_if(id);
  EXPECT_NE(what_if, nullptr) << id;
  Durations durations(replay.timeline());
  Latencies latencies = replay.latencies();
  assume_unseen(model, latencies);
  const auto median_window = [&] {
    const std::vector<int64_t> windows = replay.windows(durations, latencies);
    return median_of(std::vector<double>(windows.begin(), windows.end()));
  };
  Simulated out{};
  out.now_ns = median_window();
  if (!first.empty()) find_what_if(first)->change(recording, durations, latencies);
  what_if->change(recording, durations, latencies);
  out.then_ns = median_window();
  std::vector<StepId> steps;
  for (const StepTime& step : replay.as_recorded()) steps.push_back(step.step);
  if (what_if->forbidden != nullptr) out.forbidden = what_if->forbidden(recording, durations, steps);
  return out;
}

double step_of(const Simple& program) { return simulate(program, "no-communication").now_ns; }

// Steps that lose 4 ms each to another program; the first probe has none before it, so that nothing is known of that
// step.
TEST(WhatIf, OwnCpuIsWhatTheProgramTakesAlone) {
  Simple shared, alone;
  shared.taken_ns = 4'000'000;
  shared.probes = true;
  const Simulated result = simulate(shared, "own-cpu");
  EXPECT_NEAR(result.now_ns - step_of(alone), 4e6, 2e3);
  EXPECT_NEAR(result.then_ns, step_of(alone), 2e3);
  // Code of the program itself is not taken for it, and without readings nothing is known.
  Simple slow;
  slow.code_ns = 4'000'000;
  slow.probes = true;
  EXPECT_EQ(simulate(slow, "own-cpu").then_ns, step_of(slow));
  shared.probes = false;
  EXPECT_EQ(simulate(shared, "own-cpu").then_ns, step_of(shared));
}

// A wait for the GPU is the longest stretch: the CPU was taken while nobody needed it, for all that is known.
TEST(WhatIf, OwnCpuTakesNothingOfWaits) {
  Simple waiting;
  waiting.kernel_ns = 200'000;
  waiting.taken_ns = 500'000;
  waiting.probes = true;
  EXPECT_NEAR(simulate(waiting, "own-cpu").then_ns, step_of(waiting), 2e3);
}

TEST(WhatIf, EveryOneHasANameOfItsOwn) {
  for (const WhatIf& one : what_ifs()) {
    EXPECT_EQ(find_what_if(one.id), &one);
    EXPECT_FALSE(one.what.empty() || one.how.empty());
    EXPECT_NE(one.change, nullptr);
  }
  EXPECT_EQ(find_what_if("nothing"), nullptr);
}

TEST(WhatIf, WaitsWithinAStepGoWithTheirCopies) {
  for (const int64_t kernel_ns : {int64_t{2'000}, int64_t{9'500}}) {  // the host is the path; the GPU nearly is
    Simple with{.kernel_ns = kernel_ns, .reads = 8};
    Simple without = with;
    without.reads = 0;
    const Simulated found = simulate(with, "last-wait-only");
    EXPECT_GT(found.now_ns, step_of(without) * 1.1);
    EXPECT_NEAR(found.then_ns / step_of(without), 1, 0.02) << kernel_ns;
  }
}

// A copy of many bytes to the host takes its time whether or not somebody waits for it.
TEST(WhatIf, LongCopiesToTheHostStay) {
  const Simple with{.copy_ns = 200'000, .reads = 8};
  const Simulated waits = simulate(with, "last-wait-only"), copies = simulate(with, "no-copies");
  EXPECT_NEAR(waits.then_ns / waits.now_ns, 1, 0.01);
  EXPECT_LT(copies.then_ns, 0.6 * copies.now_ns);
  const double gpu_ns = 8 * 200'000 + 40 * 2'000;
  EXPECT_GT(simulate(with, "no-waits").then_ns, gpu_ns);
}

TEST(WhatIf, CopiesGoAndWaitsStay) {
  const Simple with{.reads = 8};
  Simple without = with;
  without.copied = false;
  const Simulated found = simulate(with, "no-copies");
  EXPECT_GT(found.now_ns, step_of(without) * 1.05);
  EXPECT_NEAR(found.then_ns / step_of(without), 1, 0.03);
}

TEST(WhatIf, HiddenCommunicationTakesNoTime) {
  const Simple program{.apart_ns = 6'000, .kernel_ns = 30'000};  // the GPU is the path
  TestTrace b = program.made();
  const Trace& trace = b.derive_all();
  for (Row op = 4; op < trace.gpu_ops.size(); op += 40) b.trace.gpu_links.category[op] = Category::kCommunication;
  const StepReplay replay(trace);
  const RecorderCostModel costs({});
  Durations durations(replay.timeline());
  Latencies latencies = replay.latencies();
  const std::vector<int64_t> now = replay.windows(durations, latencies);
  without_communication(Recording(replay, costs), durations, latencies);
  const std::vector<int64_t> then = replay.windows(durations, latencies);
  ASSERT_EQ(then.size(), now.size());
  for (size_t step = 0; step < now.size(); ++step) EXPECT_EQ(now[step] - then[step], 30'000) << step;
}

// The host launches the next step while the GPU works: what is left is the longer of the two.
TEST(WhatIf, WithoutAnyWaitAStepTakesWhatTheGpuTakes) {
  const Simple program{.apart_ns = 6'000, .kernel_ns = 30'000};
  const Simulated found = simulate(program, "no-waits");
  EXPECT_NEAR(found.then_ns, 40 * 31'000, 10);
}

TEST(WhatIf, HostCodeAndAllocationsGo) {
  const Simple healthy{};
  Simple gaps = healthy;
  gaps.code_ns = 700'000;
  EXPECT_NEAR(simulate(gaps, "no-host-gaps").then_ns / step_of(healthy), 1, 0.01);
  EXPECT_NEAR(simulate(healthy, "no-host-gaps").then_ns, step_of(healthy), 1);
  Simple allocates = healthy;
  allocates.malloc_ns = 300'000;
  EXPECT_NEAR(simulate(allocates, "no-allocations").then_ns / step_of(healthy), 1, 0.01);
}

// All launches at once: the GPU runs kernel behind kernel.
TEST(WhatIf, OneGraphLeavesTheGpusTime) {
  const Simple program{};
  const Simulated found = simulate(program, "graph");
  const double host_ns = 20'000 + Simple::kStartNs,
               gpu_ns = 40 * 2'000 + 39 * kApartNs;  // not seen: the GPU never was behind
  EXPECT_NEAR(found.then_ns, host_ns + gpu_ns + Simple::kReturnNs, 10);
  EXPECT_EQ(found.forbidden, "");
  // Nodes lie closer, by what was measured; and launching the graph takes the host its time, beside the GPU.
  RecorderCosts costs;
  costs["gpu_kernel"] = {3'000, 3'200, 1'100, 0, 0};
  costs["gpu_node"] = {2'400, 2'600, 0, 0, 0};
  costs["graph_32"] = costs["graph_256"] = {6'000, 6'000, 0, 0, 0};
  EXPECT_NEAR(simulate(program, "graph", costs).then_ns, host_ns + 40 * 2'000 + 39 * 300 + Simple::kReturnNs, 10);
}

TEST(WhatIf, AGraphIsForbiddenWhereTheHostReadsInBetween) {
  Simple program{};
  program.reads = 8;
  const Simulated found = simulate(program, "graph");
  EXPECT_NE(found.forbidden.find("waits 8 times within a step"), std::string::npos) << found.forbidden;
  // What is left between the waits is simulated all the same.
  EXPECT_LT(found.then_ns, found.now_ns);
  const Simulated both = simulate(program, "graph", {}, "last-wait-only");
  EXPECT_EQ(both.forbidden, "") << "nothing is read in between any more";
  EXPECT_LT(both.then_ns, found.then_ns);
}

TEST(WhatIf, HostAndGpuOfNoTime) {
  const Simple program{};  // the host is the path
  EXPECT_NEAR(simulate(program, "fast-gpu").then_ns, step_of(program), 10);
  const double least_ns = 40 * 2'000 + 39 * kApartNs + Simple::kReturnNs;
  const Simulated found = simulate(program, "fast-host");
  EXPECT_GE(found.then_ns, least_ns - 10);
  EXPECT_LE(found.then_ns, least_ns + Simple::kStartNs + 10);
}

// A copy of pageable memory to the GPU in the middle of a step, with the wait behind it; or one of pinned memory.
struct Copying {
  bool pinned = false;
  TestTrace made() const {
    constexpr int64_t kBytes = 10'000'000;  // at 25 bytes a ns 400 us
    TestTrace b;
    int64_t host = 0, gpu = -1'000'000;
    for (int s = 0; s < Simple::kSteps; ++s) {
      const int64_t begin = host;
      for (int i = 0; i < 40; ++i) {
        if (i == 20) {
          gpu = std::max(host + Simple::kStartNs, gpu + Simple::kApartNs);
          const int64_t copy_ns = pinned ? 400'000 : 2'000'000;
          const GpuOpId op = static_cast<GpuOpId>(b.trace.gpu_ops.size());
          const int64_t in_call_ns = pinned ? 5'000 : gpu + copy_ns - host;
          b.gpu(pinned ? "Memcpy HtoD (Pinned -> Device)" : "Memcpy HtoD (Pageable -> Device)", gpu, copy_ns,
                b.api("cudaMemcpyAsync", host, in_call_ns));
          b.trace.gpu_ops.bytes[op] = kBytes;
          gpu += copy_ns;
          host += in_call_ns + 5'000;
          if (!pinned) {
            b.api("cudaStreamSynchronize", host, 2'000);
            host += 2'000 + 5'000;
          }
        }
        gpu = std::max(host + Simple::kStartNs, gpu + Simple::kApartNs);
        b.gpu("gemm", gpu, 30'000, b.api("cudaLaunchKernel", host, Simple::kInCallNs));
        gpu += 30'000;
        host += 10'000;
      }
      const int64_t returned = std::max(host, gpu) + Simple::kReturnNs;
      b.api("cudaStreamSynchronize", host, returned - host);
      host = returned;
      b.annotation("decode", begin, host - begin);
      host += 20'000;
    }
    return b;
  }
};

TEST(WhatIf, PinnedCopiesTakeWhatTheyDoAndAreNotWaitedFor) {
  const double pinned_ns = simulate(Copying{.pinned = true}, "no-communication").now_ns;
  const Simulated found = simulate(Copying{}, "pinned-copies");
  EXPECT_GT(found.now_ns, 1.5 * pinned_ns);
  EXPECT_NEAR(found.then_ns / pinned_ns, 1, 0.02);
  EXPECT_NEAR(simulate(Copying{}, "last-wait-only").then_ns / found.now_ns, 1, 0.01) << "that wait is the copy's";
  EXPECT_NEAR(simulate(Copying{.pinned = true}, "pinned-copies").then_ns, pinned_ns, 10);
}

// Three elementwise kernels behind each product, or one that takes as long as the longest of them.
struct Passing {
  int passes = 3;
  bool softmax = false;
  TestTrace made() const {
    TestTrace b;
    int64_t host = 0, gpu = -1'000'000;
    const auto launch = [&](std::string_view name, int64_t dur_ns) {
      gpu = std::max(host + Simple::kStartNs, gpu + Simple::kApartNs);
      b.gpu(name, gpu, dur_ns, b.api("cudaLaunchKernel", host, Simple::kInCallNs));
      gpu += dur_ns;
      host += 6'000;
    };
    for (int s = 0; s < Simple::kSteps; ++s) {
      const int64_t begin = host;
      for (int i = 0; i < 10; ++i) {
        launch("gemm", 30'000);
        for (int p = 0; p < passes; ++p)
          launch(softmax && p == 1 ? "softmax_warp_forward" : "vectorized_elementwise_kernel",
                 p == passes - 1 ? 20'000 : 12'000);
      }
      const int64_t returned = std::max(host, gpu) + Simple::kReturnNs;
      b.api("cudaStreamSynchronize", host, returned - host);
      host = returned;
      b.annotation("decode", begin, host - begin);
      host += 20'000;
    }
    return b;
  }
};

TEST(WhatIf, FusedKernelsTakeAsLongAsTheLongestOfThem) {
  const double fused_ns = simulate(Passing{.passes = 1}, "no-communication").now_ns;
  const Simulated found = simulate(Passing{}, "fused");
  EXPECT_GT(found.now_ns, 1.3 * fused_ns);
  EXPECT_NEAR(found.then_ns / fused_ns, 1, 0.02);
  const Simulated attention = simulate(Passing{.softmax = true}, "fused");
  EXPECT_NEAR(attention.then_ns, attention.now_ns, 10) << "a softmax is attention's";
}

TEST(WhatIf, LongHostCodeStaysBetweenGraphs) {
  const Simple program{.code_ns = 700'000};
  const Simulated found = simulate(program, "graph");
  EXPECT_GT(found.then_ns, 700'000);
  EXPECT_LT(found.then_ns, simulate(program, "no-communication").now_ns - 200'000);
}

TEST(WhatIf, WhatIsBesideThePathGainsNothing) {
  const Simple program{.apart_ns = 6'000, .kernel_ns = 30'000, .code_ns = 250'000};  // hidden behind the GPU
  const Simulated found = simulate(program, "no-host-gaps");
  EXPECT_NEAR(found.then_ns, found.now_ns, 0.01 * found.now_ns);
}

// Steps that work out and read one answer after the other behind the model's kernels, each with a kernel, a copy and a
// wait of its own.
struct Checked {
  int checks = 20;
  bool read = true;  // else they are only worked out
  const char* kernel = "void elementwise_kernel<compare>";

  TestTrace made() const {
    TestTrace b;
    int64_t host = 0, gpu = -1'000'000;
    const auto launch = [&](const char* name, int64_t ns, int64_t before_ns) {
      host += before_ns;
      gpu = std::max(host + Simple::kStartNs, gpu + Simple::kApartNs);
      b.gpu(name, gpu, ns, b.api(name[0] == 'M' ? "cudaMemcpyAsync" : "cudaLaunchKernel", host, Simple::kInCallNs));
      gpu += ns;
      host += Simple::kInCallNs;
    };
    const auto wait = [&] {
      const int64_t returned = std::max(host, gpu) + Simple::kReturnNs;
      b.api("cudaStreamSynchronize", host, returned - host);
      host = returned;
    };
    for (int s = 0; s < Simple::kSteps; ++s) {
      const int64_t begin = host;
      for (int i = 0; i < 20; ++i) launch("gemm", 10'000, 5'000);
      for (int i = 0; i < checks; ++i) {
        launch(kernel, 2'000, 5'000);
        if (!read) continue;
        launch("Memcpy DtoH (Device -> Pinned)", 1'500, 5'000);
        wait();
      }
      wait();
      b.annotation("decode", begin, host - begin);
      host += 20'000;
    }
    return b;
  }
};

TEST(WhatIf, WhatIsReadTimeAndAgainIsReadOnce) {
  const Simulated found = simulate(Checked(), "reads-at-once");
  // The first answer comes behind the model's kernels, the second is the first of its like.
  const double least = simulate(Checked{.checks = 2, .read = false}, "no-communication").now_ns;
  EXPECT_NEAR(found.then_ns, least, 0.03 * least);
  EXPECT_GT(simulate(Checked(), "last-wait-only").then_ns, 1.2 * found.then_ns)
      << "they are still worked out one by one";
  // What runs a part of the model is no answer.
  const Simulated model = simulate(Checked{.kernel = "gemm"}, "reads-at-once");
  EXPECT_DOUBLE_EQ(model.then_ns, simulate(Checked{.kernel = "gemm"}, "last-wait-only").then_ns);
}

// Who knows the kernels says what they would take: shorter ones are simulated so, those that go take their launch
// along.
TEST(WhatIf, KernelsTakeWhatIsSaidOfThem) {
  const Simple long_kernels{.apart_ns = 10'000, .kernel_ns = 60'000},
      short_kernels{.apart_ns = 10'000, .kernel_ns = 20'000};
  TestTrace b = long_kernels.made();
  const Trace& trace = b.derive_all();
  const StepReplay replay(trace);
  const RecorderCostModel model({});
  const auto step_with = [&](int64_t ns, size_t every) {
    KernelTimes times;
    times[static_cast<size_t>(KernelChange::kAligned)].assign(trace.gpu_ops.size(), kStays);
    for (size_t op = 0; op < trace.gpu_ops.size(); op += every)
      times[static_cast<size_t>(KernelChange::kAligned)][op] = ns;
    const Recording recording(replay, model, {}, times);
    Durations durations(replay.timeline());
    Latencies latencies = replay.latencies();
    assume_unseen(model, latencies);
    find_what_if("aligned")->change(recording, durations, latencies);
    find_what_if("roofline")->change(recording, durations, latencies);  // of which nothing is said
    const std::vector<int64_t> windows = replay.windows(durations, latencies);
    return median_of(std::vector<double>(windows.begin(), windows.end()));
  };
  EXPECT_NEAR(step_with(20'000, 1), step_of(short_kernels), 0.01 * step_of(short_kernels));
  EXPECT_NEAR(step_with(90'000, 1), step_of(long_kernels), 1) << "a change makes nothing slower";
  Simple half = long_kernels;
  half.launches /= 2;
  EXPECT_NEAR(step_with(0, 2), step_of(half), 0.02 * step_of(half));
}

// Code between two launches that go is theirs, however long it is: of steps in which only every fourth kernel stays,
// the others take all of theirs along but what leads to the first of them.
TEST(WhatIf, CodeBetweenLaunchesThatGoIsTheirs) {
  const Simple all{.launches = 40, .apart_ns = 30'000};
  TestTrace b = all.made();
  const Trace& trace = b.derive_all();
  const StepReplay replay(trace);
  const RecorderCostModel model({});
  KernelTimes times;
  std::vector<int64_t>& then = times[static_cast<size_t>(KernelChange::kProductsKept)];
  then.assign(trace.gpu_ops.size(), kStays);
  for (size_t op = 0; op < trace.gpu_ops.size(); ++op)
    if (op % 4 != 0) then[op] = 0;
  const Recording recording(replay, model, {}, times);
  Durations durations(replay.timeline());
  Latencies latencies = replay.latencies();
  assume_unseen(model, latencies);
  find_what_if("products-kept")->change(recording, durations, latencies);
  const std::vector<int64_t> windows = replay.windows(durations, latencies);
  Simple some = all;
  some.launches = 10;
  EXPECT_NEAR(median_of(std::vector<double>(windows.begin(), windows.end())), step_of(some), 0.06 * step_of(some));
}

// Norms of four passes, of which the second stays; what was fused before, with more about it, gains nothing on top.
TEST(WhatIf, FusedNormsLeaveOnePassOfEach) {
  TestTrace b = Passing{.passes = 4}.made();
  const Trace& trace = b.derive_all();
  const StepReplay replay(trace);
  const RecorderCostModel model({});
  KernelTimes times;
  std::vector<int64_t>& norms = times[static_cast<size_t>(KernelChange::kFusedNorms)];
  for (GpuOpId op = 0; op < trace.gpu_ops.size(); ++op)
    norms.push_back(op % 5 == 0 ? kStays : op % 5 == 2 ? trace.gpu_ops.dur_ns[op] : 0);
  const Recording recording(replay, model, {}, times);
  const auto step_with = [&](std::initializer_list<std::string_view> ids) {
    Durations durations(replay.timeline());
    Latencies latencies = replay.latencies();
    assume_unseen(model, latencies);
    for (const std::string_view id : ids) find_what_if(id)->change(recording, durations, latencies);
    const std::vector<int64_t> windows = replay.windows(durations, latencies);
    return median_of(std::vector<double>(windows.begin(), windows.end()));
  };
  const double fused_ns = step_with({"fused"}), norms_ns = step_with({"fused-norms"});
  EXPECT_NEAR(fused_ns - norms_ns, 10 * 8'000, 0.02 * fused_ns) << "20 us, the longest of a run, and 12";
  EXPECT_DOUBLE_EQ(step_with({"fused", "fused-norms"}), fused_ns);
  EXPECT_DOUBLE_EQ(step_with({"fused-norms", "fused"}), norms_ns) << "nothing else is about it";
}

// A kernel may stand for others that were fused with it: what is left of it is a part, not a time.
TEST(WhatIf, RoutedExpertsKeepAPartOfWhatTheyTake) {
  const Simple long_kernels{.apart_ns = 10'000, .kernel_ns = 60'000},
      short_kernels{.apart_ns = 10'000, .kernel_ns = 15'000};
  TestTrace b = long_kernels.made();
  const Trace& trace = b.derive_all();
  const StepReplay replay(trace);
  const RecorderCostModel model({});
  KernelTimes times;
  times[static_cast<size_t>(KernelChange::kAligned)].assign(trace.gpu_ops.size(), 30'000);
  times[static_cast<size_t>(KernelChange::kRoutedExperts)].assign(trace.gpu_ops.size(), 30'000);
  const Recording recording(replay, model, {}, times);
  Durations durations(replay.timeline());
  Latencies latencies = replay.latencies();
  assume_unseen(model, latencies);
  for (const char* id : {"aligned", "routed-experts"}) find_what_if(id)->change(recording, durations, latencies);
  const std::vector<int64_t> windows = replay.windows(durations, latencies);
  EXPECT_NEAR(median_of(std::vector<double>(windows.begin(), windows.end())), step_of(short_kernels),
              0.01 * step_of(short_kernels));
}

// What all kernels depend on: steps follow where the GPU is the path, and stay where the host is. Changes made before
// are scaled too.
TEST(WhatIf, AllKernelsTakeAsMuchLongerAsIsSaid) {
  const auto step_with = [](const Simple& program, std::initializer_list<std::string_view> ids, double factor) {
    TestTrace b = program.made();
    const Trace& trace = b.derive_all();
    const StepReplay replay(trace);
    const RecorderCostModel model({});
    KernelTimes times;
    times[static_cast<size_t>(KernelChange::kAligned)].assign(trace.gpu_ops.size(), 20'000);
    Recording recording(replay, model, {}, times);
    Durations durations(replay.timeline());
    Latencies latencies = replay.latencies();
    assume_unseen(model, latencies);
    for (const std::string_view id : ids) {
      const WhatIf* const what_if = find_what_if(id);
      if (factor != 0) recording.set_scales(what_if->scale, {std::vector<double>(trace.gpu_ops.size(), factor), {}});
      what_if->change(recording, durations, latencies);
    }
    const std::vector<int64_t> windows = replay.windows(durations, latencies);
    return median_of(std::vector<double>(windows.begin(), windows.end()));
  };
  const Simple gpu{.apart_ns = 10'000, .kernel_ns = 40'000};
  Simple longer = gpu, shorter = gpu;
  longer.kernel_ns = 80'000, shorter.kernel_ns = 20'000;
  EXPECT_NEAR(step_with(gpu, {"batch-doubled"}, 2), step_of(longer), 0.01 * step_of(longer));
  EXPECT_NEAR(step_with(gpu, {"clock"}, 0.5), step_of(shorter), 0.01 * step_of(shorter));
  EXPECT_NEAR(step_with(gpu, {"gpu"}, 0.5), step_of(shorter), 0.01 * step_of(shorter));
  EXPECT_NEAR(step_with(gpu, {"aligned", "batch-doubled"}, 2), step_of(gpu), 0.01 * step_of(gpu));
  EXPECT_NEAR(step_with(gpu, {"batch-doubled"}, 0), step_of(gpu), 1) << "nothing is known";
  const Simple host{.apart_ns = 10'000, .kernel_ns = 2'000};
  EXPECT_NEAR(step_with(host, {"batch-doubled"}, 2), step_of(host), 0.01 * step_of(host) + 2'000);
}

TEST(WhatIf, GpusWorkAtOnceWithoutTheWaitsBetweenThem) {
  for (const int64_t kernel_ns : {int64_t{20'000}, int64_t{60'000}}) {
    const Relay with{.kernel_ns = kernel_ns}, without{.waited = 0, .kernel_ns = kernel_ns};
    const Simulated found = simulate(with, "last-wait-only");
    const double then_ns = simulate(without, "no-communication").now_ns;
    EXPECT_GT(found.now_ns, 1.3 * then_ns);
    EXPECT_NEAR(found.then_ns / then_ns, 1, 0.03) << kernel_ns << " now " << found.now_ns << " real " << then_ns;
  }
}

// Without ranges each lot is a step of either GPU, and all waits but those for the tokens of all lots end one in vain.
TEST(WhatIf, WaitsThatEndAStepInVainGoWhereAnotherGpuIsKept) {
  for (const int64_t kernel_ns : {int64_t{20'000}, int64_t{60'000}}) {
    const auto mean_of = [&](const Relay& program, std::string_view id) {  // of what it takes from lot to lot
      TestTrace b = program.made();
      const StepReplay replay(b.derive_all());
      const RecorderCostModel model({});
      const Recording recording(replay, model);
      Durations durations(replay.timeline());
      Latencies latencies = replay.latencies();
      assume_unseen(model, latencies);
      find_what_if(id)->change(recording, durations, latencies);
      const std::vector<int64_t> windows = replay.windows(durations, latencies);
      EXPECT_EQ(windows.size(), static_cast<size_t>(2 * Relay::kLots * Relay::kSteps));
      return std::accumulate(windows.begin(), windows.end(), 0.0) / static_cast<double>(windows.size());
    };
    const Relay with{.ranges = false, .kernel_ns = kernel_ns},
        without{.waited = 0, .ranges = false, .kernel_ns = kernel_ns};
    EXPECT_GT(mean_of(with, "clock"), 1.3 * mean_of(without, "clock"));
    EXPECT_NEAR(mean_of(with, "last-wait-only") / mean_of(without, "clock"), 1, 0.03) << kernel_ns;
  }
}

// The other GPU still works when the call returns.
TEST(WhatIf, AWaitForOneGpuIsNotForAnother) {
  TestTrace b = Relay{.waited = 1}.made();
  const StepReplay replay(b.derive_all());
  const Timeline& timeline = replay.timeline();
  size_t waits = 0, for_one = 0;
  for (ApiCallId call = 0; call < timeline.awaited.size(); ++call)
    if (timeline.awaited[call] == Awaited::kDevice) ++waits, for_one += timeline.awaits_device(call, 1) ? 0 : 1;
  EXPECT_GE(for_one, static_cast<size_t>((Relay::kLots - 1) * Relay::kSteps)) << "of " << waits;
  for (const StepTime& step : replay.as_recorded())
    EXPECT_NEAR(static_cast<double>(step.replayed_ns) / static_cast<double>(step.recorded_ns), 1, 0.001);
}

// What keeps one rank keeps the others in the collectives; without it all of them gain.
TEST(WhatIf, RanksWaitForEachOtherInCollectives) {
  for (const bool graphs : {false, true}) {
    const TwoRanks with{.code_ns = 400'000, .graphs = graphs}, without{.graphs = graphs};
    TestTrace b = with.made();
    const StepReplay replay(b.derive_all());
    EXPECT_EQ(replay.timeline().meetings.size(), static_cast<size_t>(TwoRanks::kLayers * TwoRanks::kSteps));
    for (const StepTime& step : replay.as_recorded()) {
      EXPECT_EQ(step.replayed_ns, step.recorded_ns) << step.step;
      int64_t sum = 0;
      for (const int64_t part : step.path_ns) sum += part;
      EXPECT_EQ(sum, step.replayed_ns);
    }
    const Simulated found = simulate(with, "no-host-gaps");
    const double then_ns = simulate(without, "clock").now_ns;
    EXPECT_GT(found.now_ns, then_ns + 300'000);
    EXPECT_NEAR(found.then_ns / then_ns, 1, 0.02) << graphs;
    const double alone_ns = simulate(without, "no-communication").then_ns;
    EXPECT_NEAR(then_ns - alone_ns, TwoRanks::kLayers * TwoRanks::kTogetherNs, 10);
    // Hidden communication is none that the late rank takes part in sooner.
    const auto mean_now = [](const Simulated& what) { return what.now_ns - what.then_ns; };
    EXPECT_NEAR(mean_now(simulate(with, "no-communication")), TwoRanks::kLayers * TwoRanks::kTogetherNs, 10);
  }
}

TEST(WhatIf, StreamsThatTakeTurnsWorkAtOnceApart) {
  const Simulated found = simulate(Turns{}, "streams-apart");
  const double then_ns = simulate(Turns{.turns = false}, "clock").now_ns;
  EXPECT_GT(found.now_ns, 1.8 * then_ns);
  EXPECT_NEAR(found.then_ns / then_ns, 1, 0.03);
  // A fork and a join are needed.
  const Simulated healthy = simulate(Turns{.turns = false}, "streams-apart");
  EXPECT_DOUBLE_EQ(healthy.then_ns, healthy.now_ns);
}

// Two streams run the same pass at the same time; one of them does it for both in the time that it would take alone. A
// pass that waits for the other in its midst cannot be joined with it.
TEST(WhatIf, OnePassTakesWhatItWouldAlone) {
  for (const bool turns : {false, true}) {
    TestTrace b = Turns{.turns = turns}.made();
    const Trace& trace = b.derive_all();
    const StepReplay replay(trace);
    const RecorderCostModel model({});
    KernelTimes times;
    std::vector<int64_t>& then = times[static_cast<size_t>(KernelChange::kOnePass)];
    then.assign(trace.gpu_ops.size(), kStays);
    for (size_t op = 0; op < trace.gpu_ops.size(); ++op) {
      const int64_t stream = trace.streams.stream[trace.gpu_ops.stream[GpuOpId(static_cast<Row>(op))]];
      if (stream == 13) then[op] = Turns::kKernelNs / 2;
      if (stream == 14) then[op] = 0;
    }
    const Recording recording(replay, model, {}, times);
    Durations durations(replay.timeline());
    Latencies latencies = replay.latencies();
    assume_unseen(model, latencies);
    const auto median_window = [&] {
      const std::vector<int64_t> windows = replay.windows(durations, latencies);
      return median_of(std::vector<double>(windows.begin(), windows.end()));
    };
    const double now_ns = median_window();
    const WhatIf* const one_pass = find_what_if("one-pass");
    one_pass->change(recording, durations, latencies);
    std::vector<StepId> steps;
    for (const StepTime& step : replay.as_recorded()) steps.push_back(step.step);
    EXPECT_NE(one_pass->forbidden(recording, durations, steps).find("does not say which weights"), std::string::npos);
    b.library_call(0, 10, 8, 4096, 4096);
    b.trace.library_calls.weights.back() = 0x7f0000000000;
    EXPECT_EQ(one_pass->forbidden(recording, durations, steps).empty(), !turns);
    if (turns) continue;
    EXPECT_NEAR(now_ns - median_window(), Turns::kParts * Turns::kKernelNs / 2, 10'000);
  }
}

TEST(WhatIf, CopiesOfBothWaysInOneStreamDoNotWaitForEachOther) {
  const Simulated found = simulate(BothWays{}, "copies-apart");
  const double then_ns = simulate(BothWays{.one_stream = false}, "clock").now_ns;
  EXPECT_GT(found.now_ns, 1.4 * then_ns);
  EXPECT_NEAR(found.then_ns / then_ns, 1, 0.03);
  const Simulated healthy = simulate(BothWays{.one_stream = false}, "copies-apart");
  EXPECT_DOUBLE_EQ(healthy.then_ns, healthy.now_ns);
}

// What a step reads comes down behind what another stream sends: one engine copies that way.
TEST(WhatIf, AnEngineCopiesOneAfterTheOther) {
  TestTrace b = BothWays{.one_stream = false, .down_ns = 700'000}.made();
  const StepReplay replay(b.derive_all());
  const Timeline& timeline = replay.timeline();
  const GpuOps& ops = timeline.trace.gpu_ops;
  int behind = 0;
  for (GpuOpId op = 0; op < ops.size(); ++op) {
    if (timeline.on_engine[op] == kNoRow) continue;
    EXPECT_EQ(ops.path[op], CopyPath::kDeviceToHost);
    EXPECT_NE(ops.stream[timeline.on_engine[op]], ops.stream[op]);
    ++behind;
  }
  EXPECT_GE(behind, BothWays::kSteps);
  for (const StepTime& step : replay.as_recorded()) EXPECT_NEAR(step.error_frac(), 0, 0.005) << step.step;
}

// A step launches a graph, which it has captured and made before, or which was there.
struct Capturing {
  static constexpr int64_t kNodeNs = 20'000, kApartNs = 500, kStartNs = 6'000, kLaunchNs = 8'000, kReturnNs = 3'000;
  static constexpr int kNodes = 30, kSteps = 10;
  bool anew = true;

  TestTrace made() const {
    TestTrace b;
    int64_t host = 0;
    for (int s = 0; s < kSteps; ++s) {
      const int64_t begin = host;
      if (anew) {
        const auto call = [&](std::string_view name, int64_t ns, int64_t code_ns) {
          host += code_ns;
          b.api(name, host, ns);
          host += ns;
        };
        call("cudaDeviceSynchronize", 3'000, 10'000);
        call("cudaStreamBeginCapture", 2'000, 400'000);
        for (int i = 0; i < kNodes; ++i) call("cudaLaunchKernel", 3'000, 12'000);
        call("cudaStreamEndCapture", 10'000, 5'000);
        call("cudaGraphInstantiate", 900'000, 5'000);
        host += 300'000;
      } else {
        host += 10'000;
      }
      const int64_t call_ns = anew ? 250'000 : kLaunchNs;
      const uint64_t launch = b.api("cudaGraphLaunch", host, call_ns);
      int64_t gpu = host + call_ns + kStartNs;
      for (int i = 0; i < kNodes; ++i) {
        b.node_kernel("gemm", gpu, kNodeNs, launch, static_cast<uint64_t>(i) + 1, StreamId(0));
        gpu += kNodeNs + kApartNs;
      }
      host += call_ns + 4'000;
      const int64_t returned = gpu - kApartNs + kReturnNs;
      b.api("cudaStreamSynchronize", host, returned - host);
      host = returned;
      b.annotation("decode", begin, host - begin);
      host += 20'000;
    }
    return b;
  }
};

TEST(WhatIf, GraphsThatAreMadeInEachStepAreKept) {
  const Simulated found = simulate(Capturing{}, "graphs-kept");
  const double then_ns = simulate(Capturing{.anew = false}, "clock").now_ns;
  EXPECT_GT(found.now_ns, 3 * then_ns);
  // The launch of a graph that was just made is known by its cost alone: the recorder's costs are not known here.
  EXPECT_NEAR(found.then_ns - 250'000 + Capturing::kLaunchNs, then_ns, 0.03 * then_ns);
  const Simulated healthy = simulate(Capturing{.anew = false}, "graphs-kept");
  EXPECT_DOUBLE_EQ(healthy.then_ns, healthy.now_ns);
}

// Long host code before launches of steps that read the whole text chooses kernels for its new length.
TEST(WhatIf, ACacheSparesTheSearchForKernelsOfNewLengths) {
  for (const bool uncached : {true, false}) {
    TestTrace b = Simple{.code_ns = 800'000}.made();
    const StepReplay replay(b.derive_all());
    const RecorderCostModel model({});
    KernelTimes times;
    std::vector<int64_t>& cached = times[static_cast<size_t>(KernelChange::kCachedKeys)];
    cached.assign(replay.timeline().trace.gpu_ops.size(), kStays);
    const GpuOps& ops = replay.timeline().trace.gpu_ops;
    if (uncached) cached.assign(ops.dur_ns.begin(), ops.dur_ns.end());
    const Recording recording(replay, model, {}, std::move(times));
    Durations durations(replay.timeline());
    Latencies latencies = replay.latencies();
    assume_unseen(model, latencies);
    const int64_t now_ns = replay.windows(durations, latencies).back();
    with_cached_keys(recording, durations, latencies);
    const int64_t saved_ns = now_ns - replay.windows(durations, latencies).back();
    EXPECT_NEAR(static_cast<double>(saved_ns), uncached ? 800'000 : 0, 10'000);
  }
}

TEST(WhatIf, WhatIsNotKnownIsSaid) {
  TestTrace b = Simple().made();
  const Trace& trace = b.derive_all();
  const StepReplay replay(trace);
  const RecorderCostModel model({});
  Recording recording(replay, model);
  recording.set_scales(Scale::kClock, {{}, "no clock"});
  const Durations durations(replay.timeline());
  EXPECT_EQ(find_what_if("clock")->forbidden(recording, durations, {}), "no clock");
  EXPECT_EQ(find_what_if("gpu")->forbidden(recording, durations, {}), "");
}

}  // namespace
}  // namespace llmprof::replay
