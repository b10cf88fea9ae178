// Runs for the tests of src/diff: steps "decode" of launches that the host waits for, each start exactly its latest
// predecessor and a latency, with what a test plants.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <utility>

#include "analyze/analysis.h"
#include "derive_trace_builder.h"
#include "diff/run.h"

namespace llmprof::diff {

struct Plan {
  int steps = 12, launches = 40;
  int64_t apart_ns = 12'000;   // from call to call
  int64_t kernel_ns = 4'000;   // of each
  int64_t special_ns = 4'000;  // of the one in the middle
  std::string special = "gemm_special";
  int64_t gap_ns = 0;  // of host code before the one in the middle
  // Of host code behind every so many launches, and how many times as long it takes than the pace has it.
  int64_t long_ns = 0, long_every = 3;
  double long_pace = 1;
  int waits = 0;  // for the GPU, after so many launches each
  int64_t wait_every = 5;
  int64_t wait_code_ns = 0;   // of host code before each
  double pace = 1;            // of the host: all that it does takes so many times as long
  bool driver_keeps = false;  // but for its calls: it is the program that is slower
  double odd_pace = 1;        // of every other step, on top of that
  int unrecorded = 0;         // launches behind the last step's, whose kernels and wait are not recorded
};

inline Trace trace_of(const Plan& plan) {
  constexpr int64_t kLaunchNs = 4'000, kCallNs = 5'000, kWakeNs = 3'000, kGapNs = 1'000;
  TestTrace b;
  double pace = plan.pace;
  const auto pace_of = [&plan](int step) { return step % 2 == 1 ? plan.pace * plan.odd_pace : plan.pace; };
  const auto on_host = [&pace](int64_t ns) { return static_cast<int64_t>(static_cast<double>(ns) * pace); };
  int64_t host = 0, gpu = -1'000'000;
  for (int step = 0; step < plan.steps; ++step) {
    const int64_t begin = host;
    const auto wait = [&] {
      const int64_t returned = std::max(host, gpu) + kWakeNs;
      b.api("cudaStreamSynchronize", host, returned - host);
      host = returned;
    };
    int waited = 0;
    for (int i = 0; i < plan.launches; ++i) {
      const bool special = i == plan.launches / 2;
      if (special) host += on_host(plan.gap_ns);
      const int64_t dur = special ? plan.special_ns : plan.kernel_ns;
      gpu = std::max(host + kLaunchNs, gpu + kGapNs);
      b.gpu(special ? plan.special : "gemm_" + std::to_string(i), gpu, dur,
            b.api("cudaLaunchKernel", host, plan.driver_keeps ? kCallNs : on_host(kCallNs)));
      gpu += dur;
      host += on_host(plan.apart_ns);
      if ((i + 1) % plan.long_every == 0)
        host += on_host(static_cast<int64_t>(static_cast<double>(plan.long_ns) * plan.long_pace));
      if (waited < plan.waits && (i + 1) % plan.wait_every == 0) {
        host += on_host(plan.wait_code_ns);
        wait();
        host += on_host(5'000);
        ++waited;
      }
    }
    const bool cut = plan.unrecorded > 0 && step + 1 == plan.steps;
    if (!cut) wait();
    b.annotation("decode", begin, host - begin);
    for (int i = 0; cut && i < plan.unrecorded; ++i) b.api("cudaLaunchKernel", host += 100'000, kCallNs);
    pace = pace_of(step + 1);
    host += on_host(20'000);
  }
  b.derive_all();
  return std::move(b.trace);
}

inline Run run_of(Trace trace, std::string name = "run") {
  Run run;
  run.name = std::move(name);
  run.trace = std::move(trace);
  Result<Report> report = analyze(run.trace);
  EXPECT_TRUE(report) << report.error().text();
  if (report) run.report = *std::move(report);
  return run;
}
inline Run run_of(const Plan& plan) { return run_of(trace_of(plan)); }

}  // namespace llmprof::diff
