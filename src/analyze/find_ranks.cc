// Findings about several GPUs of one recording.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <vector>

#include "analyze/finding.h"
#include "analyze/kernel_scales.h"
#include "analyze/rank_names.h"
#include "base/statistics.h"
#include "base/text_table.h"
#include "replay/meetings.h"

namespace llmprof {
namespace {

// Waits of a stage's GPU in collectives for another one to begin.
struct Waits {
  int64_t ns = 0, collectives = 0;
  std::map<StepId, double> steps;
  std::map<StringId, std::vector<double>> unstaged;  // of collectives in no step, by kernel
  std::map<int32_t, int64_t> behind;                 // which GPU began last, ns

  // Of a step; where there are none, of all collectives, each kernel's as long as its median: a wait that comes once,
  // as for the start of a recorder, is no change to begin with. `beyond_ns`: of each such wait only what is longer.
  double typical_ns(double beyond_ns = 0) const {
    double all_ns = 0;
    for (const auto& [kernel, of_kernel] : unstaged)
      all_ns += std::max(0.0, median_of(of_kernel) - beyond_ns) * static_cast<double>(of_kernel.size());
    if (steps.empty()) return all_ns;
    std::vector<double> each;
    for (const auto& [step, step_ns] : steps) each.push_back(step_ns);
    return median_of(std::move(each));
  }
};

std::map<uint32_t, Waits> waits_by_stage(const FindingContext& finding) {
  const Trace& trace = finding.trace();
  std::map<uint32_t, Waits> out;
  std::map<int32_t, uint32_t> unstaged;  // by device
  for (const StageView& view : finding.unstaged) unstaged[view.group->device] = view.stage;
  for (const replay::Meeting& meeting : replay::find_meetings(trace)) {
    const GpuOpId last = *std::max_element(meeting.begin(), meeting.end(), [&](GpuOpId a, GpuOpId b) {
      return trace.gpu_ops.start_ns[a] < trace.gpu_ops.start_ns[b];
    });
    for (const GpuOpId op : meeting) {
      const StepId step = trace.gpu_links.step[op];
      const auto none = unstaged.find(trace.device_of(op));
      if (step == kNoRow && none == unstaged.end()) continue;
      Waits& waits = out[step == kNoRow ? none->second : finding.context.groups.stage_of_step[step]];
      const int64_t waited_ns = replay::waited_ns(trace, meeting, op);
      waits.ns += waited_ns;
      ++waits.collectives;
      if (step == kNoRow)
        waits.unstaged[trace.gpu_ops.name[op]].push_back(static_cast<double>(waited_ns));
      else
        waits.steps[step] += static_cast<double>(waited_ns);
      waits.behind[trace.device_of(last)] += waited_ns;
    }
  }
  return out;
}

}  // namespace

std::map<uint32_t, RankWaits> waits_for_ranks(const FindingContext& finding) {
  std::map<uint32_t, RankWaits> out;
  if (finding.trace().ranks.empty()) return out;
  for (const auto& [stage, waits] : waits_by_stage(finding))
    out[stage] = {static_cast<double>(waits.ns), waits.collectives};
  return out;
}

void find_rank_skew(const FindingContext& finding) {
  constexpr double kWaitShareMin = 0.10, kOneIsLateMin = 0.8;
  // Clocks of the GPUs of one host agree to some microseconds; a wait as long as that may be none.
  constexpr double kClocksApartNs = 10'000;
  const std::map<uint32_t, Waits> waits = waits_by_stage(finding);
  for (const StageView* view : finding.with_unstaged()) {
    const StageView& stage = *view;
    const auto found = waits.find(stage.stage);
    if (found == waits.end()) continue;
    const Waits& of = found->second;
    const double wait_ns = of.typical_ns() * (stage.whole() ? 1 : stage.count());
    const double sure_ns = stage.whole() ? of.typical_ns(kClocksApartNs) : wait_ns;
    if (!finding.worth(stage, "even-ranks", sure_ns >= kWaitShareMin * stage.wall_ns())) continue;
    const auto late = std::max_element(of.behind.begin(), of.behind.end(),
                                       [](const auto& a, const auto& b) { return a.second < b.second; });
    const std::string late_name = rank_name(finding.trace(), late->first);
    const double late_frac = of.ns > 0 ? static_cast<double>(late->second) / static_cast<double>(of.ns) : 0;
    Finding& out = finding.add(
        "rank-skew", &stage,
        fmt::format("{}{} waits {:.3g} ms{} in collectives for {} to begin", stage.label(),
                    rank_name(finding.trace(), stage.timing->device), of.typical_ns() / 1e6,
                    stage.whole() ? "" : " a step", late_frac >= kOneIsLateMin ? late_name : std::string("others")),
        wait_ns);
    const double steps = stage.whole() ? 1 : static_cast<double>(of.steps.size());
    out.evidence = {measured(stage.each("waiting in collectives"), of.typical_ns() / 1e6, Unit::kMs),
                    counted(stage.each("collectives"), static_cast<double>(of.collectives) / steps, Unit::kOne),
                    measured(fmt::format("of its waiting, for {}", late_name), late_frac, Unit::kFrac)};
    out.late_device = late->first;
    out.advice = {
        fmt::format("{} is the late one: its findings and its critical path say what it does before. "
                    "Even out what the ranks compute, and keep sampling, logging and input preparation off "
                    "the launching thread of any of them.",
                    late_name)};
    out.bound = stage.bound(wait_ns);
  }
}

void find_uneven_gpus(const FindingContext& finding) {
  constexpr double kUnevenMin = 1.25;
  const std::map<StringId, std::map<int32_t, double>> stages = work_of_gpus(finding.context);
  for (const StageView& stage : finding.stages) {
    const auto found = stage.whole() ? stages.end() : stages.find(stage.group->name);
    if (found == stages.end() || found->second.size() < 2) continue;
    const auto by_work = [](const auto& a, const auto& b) { return a.second < b.second; };
    const auto [least, most] = std::minmax_element(found->second.begin(), found->second.end(), by_work);
    if (stage.group->device != most->first || most->second < kUnevenMin * least->second) continue;
    if (!finding.worth(stage, "even-gpus", false)) continue;
    double all_ns = 0;
    for (const auto& [device, ns] : found->second) all_ns += ns;
    const double gain_ns = most->second - all_ns / static_cast<double>(found->second.size());
    Finding& out = finding.add("uneven-gpus", &stage,
                               fmt::format("{}GPU {} has {:.3g} times the work of GPU {} in each pass of the model",
                                           stage.label(), most->first, most->second / least->second, least->first),
                               gain_ns);
    for (const auto& [device, ns] : found->second)
      out.evidence.push_back(
          measured(fmt::format("time of the kernels of GPU {}, per step", device), stage.per_step_ms(ns), Unit::kMs));
    out.advice = {
        "Divide the layers so that each GPU has as much time, not as many layers: the first has the embedding, the "
        "last "
        "the output layer.",
        "Where passes cannot follow each other (a token at a time of one request), equal parts bring nothing: divide "
        "each "
        "layer instead (tensor parallelism), or use one GPU."};
    out.bound = stage.bound(gain_ns);
  }
}

}  // namespace llmprof
