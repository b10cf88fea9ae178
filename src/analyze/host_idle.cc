// The GPU's idle time behind the host, cut into disjoint parts: what launches cost, what other host code costs, what
// follows a blocking wait, and what prepares inputs.
#include <algorithm>

#include "analyze/finding.h"
#include "derive/host_calls.h"

namespace llmprof {
namespace {

// Up to this much idle time per launch call the gaps are made of launches and dispatch; above, of other host work.
constexpr double kIdlePerLaunchNsMax = 60'000;

// Gaps that begin while the host waits for the GPU in a blocking call: had it not waited, the next launch would have
// been queued. Longer ones than kLongGapNs are host code, whatever came before them.
void add_gaps_after_syncs(FindingContext& finding, std::vector<StageView*>& by_stage) {
  constexpr int64_t kClockSlackNs = 5'000;
  const Trace& trace = finding.trace();
  const Gaps& gaps = trace.gaps;
  finding.gap_after_sync.assign(gaps.size(), 0);
  const HostCalls calls(trace);
  for (Row first = 0, last = 0; first < gaps.size(); first = last) {
    const Row next = gaps.next_gpu_op[first];
    int64_t end = gaps.start_ns[first];
    while (last < gaps.size() && gaps.device[last] == gaps.device[first] && gaps.next_gpu_op[last] == next &&
           gaps.start_ns[last] == end) {
      end += gaps.dur_ns[last];
      ++last;
    }
    const int64_t start = gaps.start_ns[first];
    const ApiCallId api = next != kNoRow ? trace.gpu_links.api[next] : kNoRow;
    if (api == kNoRow || end - start >= kLongGapNs) continue;
    const BlockingCall* call = calls.last_blocking_before(trace.api_calls.thread[api], trace.api_calls.start_ns[api]);
    if (call == nullptr || call->start_ns > start + kClockSlackNs || call->end_ns < start - kClockSlackNs) continue;
    bool counted = false;
    for (Row g = first; g < last; ++g) {
      StageView* stage =
          gaps.step[g] != kNoRow ? by_stage[finding.context.groups.stage_of_step[gaps.step[g]]] : nullptr;
      if (stage == nullptr || !is_host_cause(gaps.cause[g])) continue;
      finding.gap_after_sync[g] = 1;
      stage->host.after_sync_ns += static_cast<double>(gaps.dur_ns[g]);
      if (!counted) ++stage->host.after_syncs;
      counted = true;
    }
  }
}

// Less hides in the noise of start-up.
bool tells_preparing(const FindingContext& finding) {
  constexpr double kShareMin = 0.05;
  if (finding.between || finding.trace().python_calls.empty()) return false;
  const PythonIdle idle = idle_behind(finding, prepares_inputs);
  return !idle.sites_ns.empty() && idle.whole_ns >= kShareMin * finding.window_ns;
}

// Sums of the gaps of each stage; `after` those after a wait, by cause.
using ByCause = std::array<double, static_cast<size_t>(IdleCause::kCount)>;
void sum_gaps(const FindingContext& finding, std::vector<StageView*>& by_stage, std::vector<ByCause>& after) {
  const Gaps& gaps = finding.trace().gaps;
  for (Row g = 0; g < gaps.size(); ++g) {
    if (gaps.step[g] == kNoRow || !is_host_cause(gaps.cause[g])) continue;
    const uint32_t row = finding.context.groups.stage_of_step[gaps.step[g]];
    if (by_stage[row] == nullptr || finding.before_serving(gaps.device[g], gaps.start_ns[g])) continue;
    HostIdle& host = by_stage[row]->host;
    const double gap_ns = static_cast<double>(gaps.dur_ns[g]);
    const size_t cause = static_cast<size_t>(gaps.cause[g]);
    if (finding.told_elsewhere(g)) {
      if (!finding.between) continue;
      host.boundary_ns += gap_ns;
      ++host.boundary_gaps;
    } else if (finding.is_long(g)) {
      host.code_ns += gap_ns;
      ++host.long_gaps;
    } else if (!finding.gap_after_sync.empty() && finding.gap_after_sync[g] != 0) {
      after[row][cause] += gap_ns;
    } else {
      host.launch_by_cause[cause] += gap_ns;
    }
  }
}

double sum_of(const ByCause& parts) {
  double sum = 0;
  for (const double ns : parts) sum += ns;
  return sum;
}

}  // namespace

double StageView::host_idle_ns() const {
  double sum = 0;
  for (size_t c = 0; c < idle_by_cause.size(); ++c)
    if (is_host_cause(static_cast<IdleCause>(c))) sum += static_cast<double>(idle_by_cause[c]);
  return sum;
}

bool is_host_cause(IdleCause cause) {
  return cause == IdleCause::kLaunchCall || cause == IdleCause::kOperatorDispatch || cause == IdleCause::kHostWork ||
         cause == IdleCause::kLaunchLatency || cause == IdleCause::kOtherApi;
}

bool prepares_inputs(std::string_view python_name) {
  for (const std::string_view part : {"tokeniz", "image_process", "processing_"})
    if (python_name.find(part) != std::string_view::npos) return true;
  return false;
}

PythonIdle idle_behind(const FindingContext& finding, bool (*wanted)(std::string_view)) {
  const Trace& trace = finding.trace();
  const Gaps& gaps = trace.gaps;
  PythonIdle out;
  for (Row g = 0; g < gaps.size(); ++g) {
    if (gaps.python[g] == kNoRow || gaps.cause[g] == IdleCause::kNotRecorded) continue;
    const StringId name = trace.python_calls.name[gaps.python[g]];
    if (!wanted(trace.text(name)) || finding.before_serving(gaps.device[g], gaps.start_ns[g])) continue;
    const Groups& groups = finding.context.groups;
    const uint32_t stage =
        gaps.step[g] != kNoRow ? groups.stage_of_step[gaps.step[g]] : groups.unattributed(gaps.device[g]);
    const double gap_ns = static_cast<double>(gaps.dur_ns[g]);
    if (groups.stages[stage].is_warm_up()) continue;
    if (finding.preparation(stage) != nullptr && wanted == &prepares_inputs) continue;  // reported for the stage
    // Of steps that are recorded in part, their like in complete ones stand for them.
    if (groups.stages[stage].missing != MissingKernels::kAll) out.whole_ns += finding.whole_ns(stage, gap_ns);
    out.sites_ns[name] += gap_ns;
    if (gaps.step[g] != kNoRow) out.stages_ns[stage] += gap_ns;
  }
  return out;
}

bool FindingContext::of_stage(Row gap, const StageView& stage) const {
  const StepId step = trace().gaps.step[gap];
  if (stage.whole()) return step == kNoRow && trace().gaps.device[gap] == stage.group->device;
  return step != kNoRow && context.groups.stage_of_step[step] == stage.stage;
}

bool FindingContext::prepares(Row gap) const {
  const PythonCallId python = trace().gaps.python[gap];
  return python != kNoRow && prepares_inputs(trace().text(trace().python_calls.name[python]));
}

bool FindingContext::is_long(Row gap) const {
  const IdleCause cause = trace().gaps.cause[gap];
  return (cause == IdleCause::kHostWork || cause == IdleCause::kOperatorDispatch) &&
         trace().gaps.dur_ns[gap] >= kLongGapNs;
}

bool FindingContext::opens_step(Row gap) const {
  const Row next = trace().gaps.next_gpu_op[gap], step = trace().gaps.step[gap];
  return next != kNoRow && step != kNoRow && trace().gpu_ops.start_ns[next] == trace().steps.gpu_start_ns[step];
}

bool FindingContext::told_elsewhere(Row gap) const {
  return between ? is_long(gap) && opens_step(gap) : preparing && prepares(gap);
}

bool FindingContext::is_code(Row gap, const StageView& stage) const {
  if (!is_host_cause(trace().gaps.cause[gap]) || told_elsewhere(gap)) return false;
  if (is_long(gap)) return true;
  const bool after_sync = !gap_after_sync.empty() && gap_after_sync[gap] != 0;
  return stage.host.short_is_code && !(after_sync && stage.host.drained);
}

bool FindingContext::is_launch(Row gap, const StageView& stage) const {
  if (!is_host_cause(trace().gaps.cause[gap]) || told_elsewhere(gap) || is_long(gap)) return false;
  return !stage.host.short_is_code && !(stage.host.drained && gap_after_sync[gap] != 0);
}

bool FindingContext::is_wait(Row gap, const StageView& stage) const {
  return trace().gaps.cause[gap] == IdleCause::kBlockingSync || (stage.host.drained && gap_after_sync[gap] != 0);
}

namespace {

// A recorded step waits for the host longer than the program alone does: that part of the gaps is no finding about the
// program.
void leave_recorder_out(StageView& stage) {
  HostIdle& host = stage.host;
  const double host_ns = sum_of(host.launch_by_cause) + host.code_ns;
  if (host_ns <= 0) return;
  host.recorder_ns = std::min(host_ns, recorder_cost_ns(*stage.group, *stage.timing));
  for (double& ns : host.launch_by_cause) ns *= 1 - host.recorder_ns / host_ns;
  host.code_ns *= 1 - host.recorder_ns / host_ns;
}

}  // namespace

void add_host_idle(FindingContext& finding, std::vector<StageView*>& by_stage) {
  finding.between = finding.live() && finding.trace().python_calls.empty();
  finding.preparing = tells_preparing(finding);
  if (finding.live()) add_gaps_after_syncs(finding, by_stage);
  std::vector<ByCause> after(by_stage.size());
  sum_gaps(finding, by_stage, after);
  for (size_t s = 0; s < by_stage.size(); ++s) {
    if (by_stage[s] == nullptr) continue;
    StageView& stage = *by_stage[s];
    HostIdle& host = stage.host;
    // Blocking calls, and not slow launching, empty the GPU's queue: the gaps after them are most of the short ones.
    host.drained = host.after_sync_ns > sum_of(host.launch_by_cause);
    if (!host.drained)
      for (size_t c = 0; c < after[s].size(); ++c) host.launch_by_cause[c] += after[s][c];
    leave_recorder_out(stage);
    host.launch_ns = sum_of(host.launch_by_cause);
    // Short pieces of one long gap (cut by cause) add up to much idle time per launch.
    const double launches = static_cast<double>(std::max<int64_t>(1, stage.launches));
    if (host.launch_ns <= kIdlePerLaunchNsMax * launches) continue;
    host.short_is_code = true;
    host.code_ns += host.launch_ns;
    host.launch_ns = 0;
  }
}

}  // namespace llmprof
