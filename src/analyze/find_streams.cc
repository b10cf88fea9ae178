// Findings about several streams of one GPU.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "analyze/finding.h"
#include "base/text_table.h"

namespace llmprof {
namespace {

// Kernels of a stage on its streams.
struct StreamWork {
  std::map<StreamId, int64_t> ns;
  int64_t at_once_ns = 0;  // with a kernel on another stream

  int64_t sum_ns() const {
    int64_t sum = 0;
    for (const auto& [stream, ns_of] : ns) sum += ns_of;
    return sum;
  }
};

std::map<uint32_t, StreamWork> work_by_stage(const FindingContext& finding) {
  const Trace& trace = finding.trace();
  std::map<uint32_t, StreamWork> out;
  std::map<uint32_t, int64_t> until_ns;  // by stage: the last end so far
  for (Row op = 0; op < trace.gpu_ops.size(); ++op) {
    const StepId step = trace.gpu_links.step[op];
    if (step == kNoRow || trace.gpu_ops.kind[op] != GpuOpKind::kKernel) continue;
    const uint32_t stage = finding.context.groups.stage_of_step[step];
    StreamWork& work = out[stage];
    work.ns[trace.gpu_ops.stream[op]] += trace.gpu_ops.dur_ns[op];
    int64_t& until = until_ns.try_emplace(stage, INT64_MIN).first->second;
    const int64_t start = trace.gpu_ops.start_ns[op], end = trace.end_of(op);
    if (until > start) work.at_once_ns += std::min(until, end) - start;
    until = std::max(until, end);
  }
  return out;
}

}  // namespace

void find_streams_taking_turns(const FindingContext& finding) {
  constexpr double kPartMin = 0.10;  // of the kernels' time, for a stream to count
  constexpr double kAtOnceMost = 0.05;
  const std::map<uint32_t, StreamWork> works = work_by_stage(finding);
  for (const StageView& stage : finding.stages) {
    const auto found = works.find(stage.stage);
    if (found == works.end() || found->second.ns.size() < 2) continue;
    const StreamWork& work = found->second;
    const double sum_ns = static_cast<double>(work.sum_ns());
    std::vector<std::pair<int64_t, int64_t>> streams;  // ns and number, the most first
    for (const auto& [stream, ns] : work.ns)
      if (static_cast<double>(ns) >= kPartMin * sum_ns)
        streams.emplace_back(ns, finding.trace().streams.stream[stream]);
    if (streams.size() < 2 || static_cast<double>(work.at_once_ns) > kAtOnceMost * sum_ns) continue;
    if (!finding.worth(stage, "streams-apart", false)) continue;
    std::sort(streams.rbegin(), streams.rend());
    Finding& out =
        finding.add("streams-taking-turns", &stage,
                    fmt::format("{}{} streams of kernels never work at once: they wait for each other's events",
                                stage.label(), streams.size()),
                    sum_ns - static_cast<double>(streams.front().first));
    const double steps = static_cast<double>(std::max<size_t>(1, stage.group->steps.size()));
    for (const auto& [ns, number] : streams)
      out.evidence.push_back(measured(fmt::format("kernels of stream {} per step", number),
                                      static_cast<double>(ns) / steps / 1e6, Unit::kMs));
    out.evidence.push_back(
        measured("of it while another stream works", static_cast<double>(work.at_once_ns) / sum_ns, Unit::kFrac));
    out.advice = {
        "Let a stream wait only for what its next kernel reads: one event where work forks, one where it joins. If "
        "every part does need the other stream's, use one stream, which saves the events.",
        "Kernels that fill the GPU slow each other when they run at once: then less is gained."};
    out.bound = stage.bound(sum_ns - static_cast<double>(streams.front().first));
  }
}

void find_copies_one_stream(const FindingContext& finding) {
  const Trace& trace = finding.trace();
  const GpuOps& ops = trace.gpu_ops;
  const std::set<StreamId> streams = replay::copying_both_ways(trace);
  if (streams.empty()) return;
  struct Sums {
    double up_ns = 0, down_ns = 0;
    std::set<StreamId> streams;
  };
  std::map<uint32_t, Sums> stages;
  for (GpuOpId op = 0; op < ops.size(); ++op) {
    const bool up = ops.path[op] == CopyPath::kHostToDevice, down = ops.path[op] == CopyPath::kDeviceToHost;
    if ((!up && !down) || trace.gpu_links.step[op] == kNoRow || streams.count(ops.stream[op]) == 0) continue;
    Sums& sums = stages[finding.stage_of(op)];
    (up ? sums.up_ns : sums.down_ns) += static_cast<double>(ops.dur_ns[op]);
    sums.streams.insert(ops.stream[op]);
  }
  for (const StageView& stage : finding.stages) {
    const auto found = stages.find(stage.stage);
    if (found == stages.end() || found->second.up_ns == 0 || found->second.down_ns == 0) continue;
    const Sums& sums = found->second;
    if (!finding.worth(stage, "copies-apart", false)) continue;
    Finding& out = finding.add("copies-one-stream", &stage,
                               fmt::format("{}copies to the GPU and to the host wait for each other in stream {}",
                                           stage.label(), trace.streams.stream[*sums.streams.begin()]),
                               std::min(sums.up_ns, sums.down_ns));
    out.evidence = {measured("copies to the GPU per step", stage.per_step_ms(sums.up_ns), Unit::kMs),
                    measured("copies to the host per step", stage.per_step_ms(sums.down_ns), Unit::kMs)};
    out.advice = {
        "Give each direction a stream of its own: a GPU has an engine for either, and the link carries both at once.",
        "Let a copy wait for the event of what it copies alone, not for all that a stream holds."};
    finding.add_places(stage, PlaceKind::kCopy, out);
    out.bound = stage.bound(std::min(sums.up_ns, sums.down_ns));
  }
}

}  // namespace llmprof
