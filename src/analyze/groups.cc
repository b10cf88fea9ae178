#include "analyze/groups.h"

#include <algorithm>
#include <map>
#include <set>

#include "analyze/exposed.h"
#include "analyze/several_gpus.h"
#include "base/parallel.h"
#include "derive/steps.h"
#include "results/report.h"

namespace llmprof {
namespace {

struct StageKey {
  int32_t device;
  StringId name;
  StageKind kind;
  StageSource source;
  MissingKernels missing;
  StepState state;
  friend bool operator==(const StageKey&, const StageKey&) = default;
  uint64_t hash() const {
    uint64_t what = 0;
    for (const uint8_t part : {static_cast<uint8_t>(kind), static_cast<uint8_t>(source), static_cast<uint8_t>(missing),
                               static_cast<uint8_t>(state)})
      what = what << 8 | part;
    return mix_bits((uint64_t{index(name)} << 32 | static_cast<uint32_t>(device)) ^ mix_bits(what));
  }
};

// By the first step of a stage, and steps of warm-up behind the steady ones.
void group_steps(const Trace& trace, std::vector<StageGroup>& stages) {
  const Steps& steps = trace.steps;
  FlatIndex<StageKey> index;
  std::vector<StageGroup> by_phase;  // two for each key: serving, warm-up
  for (Row s = 0; s < steps.size(); ++s) {
    const uint32_t stage =
        index.add({steps.device[s], steps.stage[s], steps.kind[s], steps.source[s], steps.missing[s], steps.state[s]});
    if (2 * stage == by_phase.size()) {
      StageGroup group;
      group.device = steps.device[s];
      group.kind = steps.kind[s];
      group.source = steps.source[s];
      group.name = steps.stage[s];
      group.missing = steps.missing[s];
      group.state = steps.state[s];
      by_phase.push_back(group);
      group.phase = StepPhase::kWarmUp;
      by_phase.push_back(std::move(group));
    }
    by_phase[2 * stage + static_cast<uint32_t>(steps.phase[s])].steps.push_back(s);
  }
  for (StageGroup& group : by_phase)
    if (!group.steps.empty()) stages.push_back(std::move(group));
}

void add_stages(const Trace& trace, std::vector<StageGroup>&& stages, Groups& groups) {
  groups.stages = std::move(stages);
  groups.stage_of_step.resize(trace.steps.size());
  for (uint32_t stage = 0; stage < groups.stages.size(); ++stage) {
    for (const Row s : groups.stages[stage].steps) {
      groups.stage_of_step[s] = stage;
      groups.stages[stage].wall_ns += trace.steps.end_ns[s] - trace.steps.start_ns[s];
    }
  }
}

void add_time_outside_steps(const Trace& trace, Groups& groups) {
  const auto add_outside = [&](int32_t device) {
    StageGroup& group = groups.stages.emplace_back();
    group.device = device;
    group.unattributed = true;
  };
  for (const Window& window : trace.windows) add_outside(window.device);
  if (trace.windows.empty()) add_outside(0);
  for (const Window& window : trace.windows) {
    const uint32_t outside = groups.unattributed(window.device);
    int64_t wall = window.end_ns - window.start_ns;
    for (const StageGroup& group : groups.stages)
      if (!group.unattributed && group.device == window.device) wall -= group.wall_ns;
    groups.stages[outside].wall_ns = wall;
  }
  groups.stage_of_stream.resize(trace.streams.size());
  for (Row s = 0; s < trace.streams.size(); ++s)
    groups.stage_of_stream[s] = groups.unattributed(trace.streams.device[s]);
}

// Busy time per stage and step: busy intervals cut at the windows of the steps. Both are sorted within a device.
void add_busy(const Trace& trace, Groups& groups) {
  groups.busy_ns.assign(trace.steps.size(), 0);
  const BusyIntervals& busy = trace.busy_intervals;
  for (const Window& window : trace.windows) {
    std::vector<Row> steps;
    for (Row s = 0; s < trace.steps.size(); ++s)
      if (trace.steps.device[s] == window.device) steps.push_back(s);
    StageGroup& outside = groups.stages[groups.unattributed(window.device)];
    size_t next = 0;  // first step that ends after the current interval starts
    for (Row b = 0; b < busy.size(); ++b) {
      if (busy.device[b] != window.device) continue;
      const int64_t start = busy.start_ns[b], end = busy.end_ns[b];
      int64_t rest = end - start;
      while (next < steps.size() && trace.steps.end_ns[steps[next]] <= start) ++next;
      for (size_t i = next; i < steps.size() && trace.steps.start_ns[steps[i]] < end; ++i) {
        const int64_t inside =
            std::min(end, trace.steps.end_ns[steps[i]]) - std::max(start, trace.steps.start_ns[steps[i]]);
        if (inside <= 0) continue;
        groups.stages[groups.stage_of_step[steps[i]]].busy_ns += inside;
        groups.busy_ns[steps[i]] += inside;
        rest -= inside;
      }
      outside.busy_ns += rest;
    }
  }
  groups.least_gpu_ns = groups.busy_ns;
}

void add_idle(const Trace& trace, Groups& groups) {
  const Gaps& gaps = trace.gaps;
  for (Row g = 0; g < gaps.size(); ++g) {
    const uint32_t stage =
        gaps.step[g] == kNoRow ? groups.unattributed(gaps.device[g]) : groups.stage_of_step[gaps.step[g]];
    (gaps.cause[g] == IdleCause::kNotRecorded ? groups.stages[stage].not_recorded_ns : groups.stages[stage].idle_ns) +=
        gaps.dur_ns[g];
    groups.stages[stage].idle_by_cause[static_cast<size_t>(gaps.cause[g])] += gaps.dur_ns[g];
  }
}

// Whether the library call has recorded sizes; then its activities are covered, whichever of them carries the work.
bool library_call_known(const Trace& trace, Row call) {
  const LibraryCalls& calls = trace.library_calls;
  return call < calls.size() && calls.m[call] > 0 && calls.n[call] > 0 && calls.k[call] > 0;
}

// Steps of the stage `group` whose kernels are missing.
bool misses_steps_of(const Groups& groups, const StageGroup& group, const StageGroup& other) {
  if (other.unattributed || other.missing == MissingKernels::kNone || other.device != group.device) return false;
  if (&other == &group || other.name != group.name || other.is_warm_up()) return false;
  // Ranges of the program belong to ranges of the program, not to detected steps that have the same name.
  return other.source == group.source ||
         std::none_of(groups.stages.begin(), groups.stages.end(), [&](const StageGroup& third) {
           return !third.unattributed && third.missing == MissingKernels::kNone && third.device == group.device &&
                  third.source == other.source && third.name == group.name && third.phase == StepPhase::kServing;
         });
}

// Time in which kernels were recorded and not, from `from_ns` to the end of the window, outside every step.
struct OutsideSteps {
  int64_t recorded_ns = 0, unrecorded_ns = 0;
};
OutsideSteps outside_steps(const Trace& trace, const Window& window, int64_t from_ns) {
  OutsideSteps out;
  const int64_t start_ns = std::max(from_ns, window.start_ns);
  out.recorded_ns = window.end_ns - start_ns;
  for (Row s = 0; s < trace.steps.size(); ++s)
    if (trace.steps.device[s] == window.device)
      out.recorded_ns -= std::max<int64_t>(0, trace.steps.end_ns[s] - std::max(start_ns, trace.steps.start_ns[s]));
  for (Row g = 0; g < trace.gaps.size(); ++g) {
    if (trace.gaps.device[g] != window.device || trace.gaps.step[g] != kNoRow) continue;
    if (trace.gaps.cause[g] == IdleCause::kNotRecorded)
      out.unrecorded_ns += std::max<int64_t>(
          0, trace.gaps.start_ns[g] + trace.gaps.dur_ns[g] - std::max(start_ns, trace.gaps.start_ns[g]));
  }
  out.recorded_ns = std::max<int64_t>(0, out.recorded_ns - out.unrecorded_ns);
  return out;
}

void find_scales(const Trace& trace, Groups& groups) {
  const std::map<int32_t, int64_t> serving = serving_starts(trace.steps);
  for (const Window& window : trace.windows) {
    const auto from = serving.find(window.device);
    const OutsideSteps outside = outside_steps(trace, window, from != serving.end() ? from->second : window.start_ns);
    // All wall time of the stages, as far as it is known.
    std::vector<std::pair<StageGroup*, double>> stages;
    double alike_ns = static_cast<double>(outside.recorded_ns), unknown_ns = static_cast<double>(outside.unrecorded_ns);
    for (StageGroup& group : groups.stages) {
      if (group.unattributed || group.device != window.device || group.missing != MissingKernels::kNone ||
          group.wall_ns <= 0)
        continue;
      if (group.is_warm_up()) continue;
      int64_t wall_ns = group.wall_ns, edge_ns = 0;
      bool known = false;
      for (const StageGroup& other : groups.stages) {
        if (!misses_steps_of(groups, group, other)) continue;
        wall_ns += other.wall_ns;
        known |= other.state == StepState::kNotRecorded;
        if (other.state == StepState::kWindowEdge) edge_ns += other.not_recorded_ns;
      }
      group.steps_unknown = !known;
      // Where the next steps are not known, a step may seem to last until recording goes on.
      if (group.steps_unknown) {
        wall_ns -= edge_ns;
        unknown_ns += static_cast<double>(edge_ns);
        alike_ns += static_cast<double>(wall_ns);
      }
      stages.emplace_back(&group, static_cast<double>(wall_ns));
    }
    const double more = alike_ns > 0 ? 1 + unknown_ns / alike_ns : 1;
    for (const auto& [group, wall_ns] : stages) {
      group->scale = wall_ns * (group->steps_unknown ? more : 1) / static_cast<double>(group->wall_ns);
      group->steps_unknown &= unknown_ns > 0;
    }
    groups.stages[groups.unattributed(window.device)].scale = more;
  }
}

void find_host_intervals(const Trace& trace, Groups& groups) {
  const Steps& steps = trace.steps;
  std::map<int32_t, std::vector<HostInterval>> by_device;
  for (Row s = 0; s < steps.size(); ++s) {
    const int64_t end = std::max(std::max(steps.sync_ns[s], steps.end_ns[s]), steps.host_start_ns[s]);
    by_device[steps.device[s]].push_back({steps.host_start_ns[s], end, groups.stage_of_step[s]});
  }
  std::map<int32_t, uint32_t> rows;
  for (auto& [device, host] : by_device) {
    std::stable_sort(host.begin(), host.end(),
                     [](const HostInterval& a, const HostInterval& b) { return a.start_ns < b.start_ns; });
    for (size_t i = 0; i + 1 < host.size(); ++i) host[i].end_ns = std::min(host[i].end_ns, host[i + 1].start_ns);
    rows[device] = static_cast<uint32_t>(groups.host.size());
    groups.host.push_back(std::move(host));
  }
  std::vector<std::set<uint32_t>> of_thread(trace.threads.size());
  std::map<int64_t, std::set<uint32_t>> of_process;
  ApiCallId last;
  for (GpuOpId op = 0; op < trace.gpu_ops.size(); ++op) {
    const ApiCallId call = trace.gpu_links.api[op];
    if (call == kNoRow || call == last) continue;
    last = call;
    const auto row = rows.find(trace.device_of(op));
    if (row == rows.end()) continue;
    const ThreadId thread = trace.api_calls.thread[call];
    of_thread[thread].insert(row->second);
    of_process[trace.threads.process_id[thread]].insert(row->second);
  }
  std::set<uint32_t> all;
  for (const auto& [device, row] : rows) all.insert(row);
  for (ThreadId thread = 0; thread < trace.threads.size(); ++thread) {
    const std::set<uint32_t>& own = of_thread[thread];
    const std::set<uint32_t>& process = of_process[trace.threads.process_id[thread]];
    const std::set<uint32_t>& rows_of = !own.empty() ? own : !process.empty() ? process : all;
    groups.host_of_thread.emplace_back(rows_of.begin(), rows_of.end());
  }
}

void group_kernels(const Trace& trace, Groups& groups) {
  const GpuOps& ops = trace.gpu_ops;
  const GpuLinks& links = trace.gpu_links;
  std::vector<uint8_t> op_has_work(trace.ops.size()), launch_seen(trace.api_calls.size());
  for (Row g = 0; g < ops.size(); ++g)
    if (links.work[g] != kNoRow && links.op[g] != kNoRow) op_has_work[links.op[g]] = 1;
  groups.kernel_of.resize(ops.size());
  const std::vector<int64_t> exposed = exposed_times(trace);
  for (Row g = 0; g < ops.size(); ++g) {
    const uint32_t stage =
        links.step[g] == kNoRow ? groups.stage_of_stream[ops.stream[g]] : groups.stage_of_step[links.step[g]];
    const uint32_t k = groups.kernel_keys.add(
        {ops.name[g], ops.config[g], links.work[g], stage, links.category[g], ops.path[g], ops.host_memory[g]});
    if (k == groups.kernels.size()) {
      groups.kernels.emplace_back().kind = ops.kind[g];
      if (ops.kind[g] == GpuOpKind::kMemcpy) groups.kernels[k].copied_bytes = 0;
    }
    groups.kernel_of.set(g, k);
    KernelSums& sums = groups.kernels[k];
    if (sums.copied_bytes &&
        (ops.bytes[g] < 0 || __builtin_add_overflow(*sums.copied_bytes, ops.bytes[g], &*sums.copied_bytes)))
      sums.copied_bytes.reset();
    const int64_t dur = ops.dur_ns[g];
    ++sums.calls;
    sums.total_ns += dur;
    sums.exposed_ns += exposed[g];
    sums.min_ns = std::min(sums.min_ns, dur);
    sums.max_ns = std::max(sums.max_ns, dur);
    const bool by_operator = links.op[g] != kNoRow && op_has_work[links.op[g]] != 0;
    if (links.work[g] != kNoRow || by_operator || library_call_known(trace, links.library_call[g]))
      sums.covered_ns += dur;
    StageGroup& group = groups.stages[stage];
    ++group.gpu_ops;
    group.gpu_ns += dur;
    groups.gpu_ns += dur;
    if (const WorkId work = links.work[g]; work != kNoRow) {
      group.weight_bytes += trace.works.weight_bytes[work];
      group.kv_bytes += trace.works.kv_bytes[work];
    }
    if (const ApiCallId api = links.api[g]; api != kNoRow && launch_seen[api] == 0) {
      launch_seen[api] = 1;
      ++group.launches;
    }
  }
}

}  // namespace

uint32_t Groups::unattributed(int32_t device) const {
  uint32_t first = 0;
  for (uint32_t s = static_cast<uint32_t>(stages.size()); s-- > 0 && stages[s].unattributed;) {
    if (stages[s].device == device) return s;
    first = s;
  }
  return first;
}

Groups group_trace(const Trace& trace) {
  Groups groups;
  std::vector<StageGroup> stages;
  group_steps(trace, stages);
  add_stages(trace, std::move(stages), groups);
  add_time_outside_steps(trace, groups);
  find_host_intervals(trace, groups);
  // Each writes its own members of the rows.
  parallel_run({[&] { group_kernels(trace, groups); },
                [&] {
                  add_busy(trace, groups);
                  add_idle(trace, groups);
                }});
  find_scales(trace, groups);
  set_least_gpu_time(trace, groups);
  return groups;
}

std::string stage_name(const Trace& trace, const StageGroup& group) {
  if (group.unattributed) return kUnattributed;
  return step_label(trace.text(group.name), group.state, group.phase);
}

}  // namespace llmprof
