// Threads that issue CUDA calls and are ready to run while others have their CPU: another process on the same core,
// more threads than CPUs, or the CPU limit of a container.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <vector>

#include "analyze/finding.h"
#include "base/text_table.h"

namespace llmprof {
namespace {

constexpr double kCpuWaitShareMin = 0.10;  // of a stage's time, where nothing can be simulated

struct CpuWaits {
  double ns = 0;
  int64_t readings = 0;
  int64_t longest_ns = 0;  // between two readings
};

// The thread that launches a step's work; kNoRow where nothing of it is recorded.
std::vector<ThreadId> launching_threads(const Trace& trace) {
  std::vector<ThreadId> out(trace.steps.size(), kNoRow);
  for (GpuOpId op = 0; op < trace.gpu_ops.size(); ++op) {
    const StepId step = trace.gpu_links.step[op];
    const ApiCallId call = trace.gpu_links.api[op];
    if (step != kNoRow && call != kNoRow && out[step] == kNoRow) out[step] = trace.api_calls.thread[call];
  }
  return out;
}

// By stage: what the launching thread waited between two of its readings, whose middle lies in a step.
std::map<uint32_t, CpuWaits> cpu_waits(const FindingContext& finding) {
  const Trace& trace = finding.trace();
  const HostPaces& paces = trace.host_paces;
  const Steps& steps = trace.steps;
  const std::vector<ThreadId> threads = launching_threads(trace);
  std::map<uint32_t, CpuWaits> out;
  std::map<ThreadId, int64_t> before_ns;  // the reading before
  for (Row row = 0; row < paces.size(); ++row) {
    const ThreadId thread = paces.thread[row];
    const auto before = before_ns.find(thread);
    if (before != before_ns.end() && paces.waited_ns[row] > 0) {
      const int64_t middle_ns = before->second + (paces.start_ns[row] - before->second) / 2;
      for (size_t s = static_cast<size_t>(std::upper_bound(steps.start_ns.begin(), steps.start_ns.end(), middle_ns) -
                                          steps.start_ns.begin());
           s-- > 0;) {
        if (threads[s] != thread) continue;
        if (steps.end_ns[s] < middle_ns) break;
        CpuWaits& waits = out[finding.context.groups.stage_of_step[s]];
        waits.ns += static_cast<double>(paces.waited_ns[row]);
        waits.longest_ns = std::max(waits.longest_ns, paces.waited_ns[row]);
        ++waits.readings;
        break;
      }
    }
    before_ns[thread] = paces.start_ns[row] + paces.dur_ns[row];
  }
  return out;
}

}  // namespace

void find_cpu_contention(const FindingContext& finding) {
  if (finding.trace().host_paces.size() == 0) return;
  const std::map<uint32_t, CpuWaits> by_stage = cpu_waits(finding);
  for (const StageView& stage : finding.stages) {
    const auto found = by_stage.find(stage.stage);
    if (found == by_stage.end() || found->second.ns <= 0) continue;
    const CpuWaits& waits = found->second;
    const double gain_ns = std::min(waits.ns, std::max(0.0, stage.wall_ns() - stage.least_gpu_ns()));
    if (!finding.worth(stage, "own-cpu", gain_ns >= kCpuWaitShareMin * stage.own_ns())) continue;
    Finding& out = finding.add("cpu-contention", &stage,
                               fmt::format("{}the thread that launches is ready to run and waits for a CPU {} of the "
                                           "time",
                                           stage.label(), format_percent(std::min(1.0, waits.ns / stage.wall_ns()))),
                               gain_ns);
    out.evidence = {
        measured("waiting for a CPU per step, by the operating system", stage.per_step_ms(waits.ns), Unit::kMs),
        measured("the most between two readings", static_cast<double>(waits.longest_ns) / 1e6, Unit::kMs),
        measured("readings with such a wait", static_cast<double>(waits.readings), Unit::kOne)};
    out.advice = {
        "Give the program CPUs of its own: no other busy process on its cores, no pinning of several threads to one "
        "core "
        "(taskset, numactl, OMP_PROC_BIND), fewer threads than CPUs (OMP_NUM_THREADS).",
        "In a container, raise its CPU limit: /sys/fs/cgroup/cpu.stat counts in nr_throttled how often it was "
        "reached."};
    out.bound = stage.bound_of_waiting(gain_ns);
  }
}

}  // namespace llmprof
