// What the time of a step consists of: the longest chain of dependencies to its end, by replay.
#include <algorithm>
#include <cmath>

#include "analyze/analysis.h"
#include "analyze/processor.h"
#include "base/statistics.h"
#include "replay/replay.h"

namespace llmprof {
namespace {

struct StepSums {
  int64_t steps = 0, recorded_ns = 0, replayed_ns = 0;
  std::array<int64_t, replay::kPathParts> parts_ns{};
  std::array<int64_t, replay::kCategories> work_ns{};
  std::vector<double> errors;  // of the steps that judge
};

// Means per step in whole nanoseconds that add up to the mean of the sum: each is what the mean of all up to it grows
// by.
void add_work(const StepSums& sums, const CriticalPathRecord& path, std::vector<CriticalPathWorkRecord>& out) {
  std::vector<CriticalPathWorkRecord> rows;
  int64_t up_to_ns = 0;
  for (size_t c = 0; c < replay::kCategories; ++c) {
    const int64_t before_ns = up_to_ns / sums.steps;
    up_to_ns += sums.work_ns[c];
    if (sums.work_ns[c] == 0) continue;
    CriticalPathWorkRecord& row = rows.emplace_back();
    row.stage = path.stage;
    row.device = path.device;
    row.category = category_name(static_cast<Category>(c));
    row.ms.ns = up_to_ns / sums.steps - before_ns;
    if (path.step_ms.ns > 0) row.share = static_cast<double>(row.ms.ns) / static_cast<double>(path.step_ms.ns);
  }
  std::stable_sort(rows.begin(), rows.end(),
                   [](const CriticalPathWorkRecord& a, const CriticalPathWorkRecord& b) { return a.ms.ns > b.ms.ns; });
  out.insert(out.end(), rows.begin(), rows.end());
}

}  // namespace

void analyze_critical_path(const Context& context, Report& report, std::vector<CannotTell>&) {
  const Trace& trace = context.trace;
  const Groups& groups = context.groups;
  if (on_cpu(context)) return;  // the host is the device there
  std::vector<StepSums> sums(groups.stages.size());
  const std::string lacking = replay::lacking(trace);
  for (const replay::StepTime& time : context.replayed.steps) {
    StepSums& sum = sums[groups.stage_of_step[time.step]];
    ++sum.steps;
    sum.recorded_ns += time.recorded_ns;
    sum.replayed_ns += time.replayed_ns;
    for (size_t part = 0; part < replay::kPathParts; ++part) sum.parts_ns[part] += time.path_ns[part];
    for (size_t c = 0; c < replay::kCategories; ++c) sum.work_ns[c] += time.work_ns[c];
    if (!time.learned) sum.errors.push_back(std::fabs(time.error_frac()));
  }
  for (uint32_t s = 0; s < groups.stages.size(); ++s) {
    const StepSums& sum = sums[s];
    if (sum.steps == 0 || sum.replayed_ns <= 0) continue;
    CriticalPathRecord row;
    row.stage = stage_name(trace, groups, s);
    row.device = groups.stages[s].device;
    row.steps = sum.steps;
    row.step_ms.ns = sum.recorded_ns / sum.steps;
    row.judged = static_cast<int64_t>(sum.errors.size());
    if (!sum.errors.empty()) {
      row.error_median_frac = median_of(sum.errors);
      row.error_worst_frac = *std::max_element(sum.errors.begin(), sum.errors.end());
    }
    const auto part = [&](replay::PathPart of) {
      const int64_t ns = sum.parts_ns[static_cast<size_t>(of)] / sum.steps;
      row.replayed_ms.ns += ns;  // the sum of what is shown
      return ns;
    };
    row.host_code_ms.ns = part(replay::PathPart::kHostCode);
    row.no_input_ms.ns = part(replay::PathPart::kNoInput);
    row.cuda_calls_ms.ns = part(replay::PathPart::kCudaCalls);
    row.launch_latency_ms.ns = part(replay::PathPart::kLaunchLatency);
    row.gpu_work_ms.ns = part(replay::PathPart::kGpuWork);
    row.gpu_gap_ms.ns = part(replay::PathPart::kGpuGap);
    row.wake_up_ms.ns = part(replay::PathPart::kWakeUp);
    // What may have been a wait for another thread, and what replay takes too little (or, below 0, too much) for.
    part(replay::PathPart::kUnexplained);
    row.unexplained_ms.ns = row.step_ms.ns;
    for (const Milliseconds& explained : {row.host_code_ms, row.no_input_ms, row.cuda_calls_ms, row.launch_latency_ms,
                                          row.gpu_work_ms, row.gpu_gap_ms, row.wake_up_ms})
      row.unexplained_ms.ns -= explained.ns;
    row.not_recorded = lacking;
    add_work(sum, row, report.critical_path_work);
    report.critical_path.push_back(std::move(row));
  }
}

}  // namespace llmprof
