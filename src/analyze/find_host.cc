// Findings about the host: launches, gaps, waits, allocator calls, start-up.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "analyze/finding.h"
#include "analyze/processor.h"
#include "analyze/requests.h"
#include "base/text_table.h"
#include "derive/blocking_launches.h"
#include "derive/host_calls.h"

namespace llmprof {
namespace {

// Below a quarter of the wall time, launch gaps are not what a stage waits for most.
constexpr double kLaunchIdleMin = 0.25;
// Causes smaller than this share of a stage are not worth a line.
constexpr double kGapShareMin = 0.10;
constexpr double kSmallShareMin = 0.01;

// Adds the places of the host that hold most of some gaps, longest first: every one is a part of all these gaps.
template <class Wanted>
void add_sites(const FindingContext& finding, const StageView& stage, Wanted&& wanted, Finding& out) {
  constexpr size_t kPythonMost = 3, kOperatorMost = 2, kCallMost = 1;
  const Trace& trace = finding.trace();
  const Gaps& gaps = trace.gaps;
  std::map<StringId, double> python, operators, calls;
  for (Row g = 0; g < gaps.size(); ++g) {
    if (!finding.of_stage(g, stage) || !wanted(g)) continue;
    const double gap_ns = static_cast<double>(gaps.dur_ns[g]);
    if (gaps.python[g] != kNoRow) python[trace.python_calls.name[gaps.python[g]]] += gap_ns;
    if (gaps.op[g] != kNoRow) operators[trace.ops.name[gaps.op[g]]] += gap_ns;
    if (gaps.api[g] != kNoRow) calls[trace.api_calls.name[gaps.api[g]]] += gap_ns;
  }
  const auto add = [&](const std::map<StringId, double>& sums, const char* what, size_t most) {
    std::vector<std::pair<double, StringId>> order;
    for (const auto& [name, ns] : sums) order.emplace_back(ns, name);
    std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
    for (size_t i = 0; i < std::min(most, order.size()); ++i)
      out.evidence.push_back(measured(fmt::format("of it {}{}", what, std::string(trace.text(order[i].second))),
                                      stage.per_step_ms(order[i].first), Unit::kMs));
  };
  add(python, "in ", kPythonMost);
  add(operators, "in operator ", kOperatorMost);
  add(calls, "in call ", kCallMost);
}

// What was left out of a stage's figures, where it is not next to nothing.
void add_left_out(const StageView& stage, Finding& out) {
  const double profiler_ns = stage.idle_ns(IdleCause::kProfiler);
  if (profiler_ns >= kSmallShareMin * stage.wall_ns())
    out.evidence.push_back(measured("idle per step while the profiler worked, not counted as the program's",
                                    stage.per_step_ms(profiler_ns), Unit::kMs));
  if (stage.host.recorder_ns >= kSmallShareMin * stage.wall_ns())
    out.evidence.push_back(measured("idle per step because recording slowed the host, not counted as the program's",
                                    stage.per_step_ms(stage.host.recorder_ns), Unit::kMs));
}

void add_launch_advice(const StageView& stage, Finding& out) {
  const double launches = static_cast<double>(stage.launches);
  if (stage.graph_replay()) {
    out.advice = {
        "CUDA graphs are in use already: make them cover whole steps, and prepare the next step's inputs "
        "on the host while the GPU works (asynchronous scheduling)."};
  } else if (stage.group->kind == StageKind::kDecode) {
    out.advice = {
        "Replay the step as a CUDA graph over a static KV cache (torch.compile(mode=\"reduce-overhead\"), "
        "cuda_graph capture of an inference server): one launch per step instead of " +
            format_count(launches / stage.count()) + ".",
        "Fuse small operators (torch.compile, fused norm, rotary and activation kernels): fewer launches.",
        "Larger batches cost the same launches and give more tokens for them."};
  } else {
    out.advice = {
        "Fuse operators (torch.compile) or process more tokens per step, so that each launch carries more "
        "work.",
        "For prompts of few distinct lengths, piecewise CUDA graphs remove most launches."};
  }
  if (stage.host.recorder_ns <= 0)
    out.advice.push_back("The recorder slows the host: without it the gaps are shorter, the GPU's part stays.");
}

}  // namespace

void find_launches_block(const FindingContext& finding) {
  const std::vector<std::pair<ApiCallId, int64_t>> blocking = blocking_launches(finding.trace());
  if (blocking.empty()) return;
  const Trace& trace = finding.trace();
  struct Sums {
    double launches = 0, waits_ns = 0;
  };
  std::map<uint32_t, Sums> stages;
  for (GpuOpId op = 0; op < trace.gpu_ops.size(); ++op) {
    const ApiCallId call = trace.gpu_links.api[op];
    if (call == kNoRow || trace.gpu_links.step[op] == kNoRow) continue;
    const auto found = std::lower_bound(blocking.begin(), blocking.end(), std::pair<ApiCallId, int64_t>(call, 0));
    if (found == blocking.end() || found->first != call) continue;
    Sums& sums = stages[finding.stage_of(op)];
    ++sums.launches;
    sums.waits_ns += static_cast<double>(trace.api_calls.dur_ns[call] - found->second);
  }
  for (const StageView& stage : finding.stages) {
    const auto found = stages.find(stage.stage);
    if (found == stages.end()) continue;
    const Sums& sums = found->second;
    const bool by_sums = sums.waits_ns >= kGapShareMin * stage.own_ns();
    if (!finding.worth(stage, "returning-launches", by_sums)) continue;
    Finding& out = finding.add("launches-block", &stage,
                               fmt::format("{}launches return only when their kernel has ended: {} of the time",
                                           stage.label(), format_percent(sums.waits_ns / stage.wall_ns())),
                               std::min(sums.waits_ns, std::max(0.0, stage.wall_ns() - stage.least_gpu_ns())));
    out.evidence = {measured("such launches per step", sums.launches / stage.count(), Unit::kOne),
                    measured("host time per step in them behind the start of their kernel",
                             stage.per_step_ms(sums.waits_ns), Unit::kMs)};
    out.advice = {
        "Unset CUDA_LAUNCH_BLOCKING; run without a debugger, compute-sanitizer or another tool that runs kernels one "
        "by "
        "one."};
    out.bound = stage.bound_of_waiting(sums.waits_ns);
  }
}

void find_launch_bound(const FindingContext& finding) {
  for (const StageView& stage : finding.stages) {
    const HostIdle& idle = stage.host;
    const double launches = static_cast<double>(stage.launches);
    if (finding.preparation(stage.stage) != nullptr) continue;
    const bool by_sums = idle.launch_ns > 0 && idle.launch_ns >= kLaunchIdleMin * stage.own_ns();
    if (launches == 0 || idle.launch_ns < kGainMin * stage.own_ns()) continue;
    if (!finding.worth(stage, "graph", by_sums)) continue;
    // Idle time in which another GPU has to work first is not the host's.
    const double gain_ns = std::min(idle.launch_ns, stage.wall_ns() - stage.least_gpu_ns());
    Finding& out = finding.add(kLaunchBound, &stage,
                               fmt::format("{}the GPU is busy {} of the time and waits {} for the host to launch work",
                                           stage.label(), format_percent(stage.busy_ns() / stage.wall_ns()),
                                           format_percent(idle.launch_ns / stage.wall_ns())),
                               gain_ns);
    out.evidence = {
        measured("GPU busy share", stage.busy_ns() / stage.wall_ns(), Unit::kFrac),
        measured("GPU busy per step", stage.per_step_ms(stage.busy_ns()), Unit::kMs),
        measured("idle per step because the host had not launched yet", stage.per_step_ms(idle.launch_ns), Unit::kMs),
        measured("launch calls per step", launches / stage.count(), Unit::kOne),
        measured("host time lost per launch", idle.launch_ns / launches / 1e3, Unit::kUs),
    };
    const auto most = std::max_element(idle.launch_by_cause.begin(), idle.launch_by_cause.end());
    const IdleCause cause = static_cast<IdleCause>(most - idle.launch_by_cause.begin());
    out.evidence.push_back(measured(fmt::format("of it per step in {}, gaps under 200 us", idle_cause_name(cause)),
                                    stage.per_step_ms(static_cast<double>(*most)), Unit::kMs));
    if (stage.least_gpu_ns() > stage.busy_ns())
      out.evidence.push_back(measured("GPU time per step at least, one GPU waiting for another",
                                      stage.per_step_ms(stage.least_gpu_ns()), Unit::kMs));
    add_left_out(stage, out);
    add_launch_advice(stage, out);
    finding.bound_gaps(
        stage, gain_ns, [&](Row gap) { return finding.is_launch(gap, stage); }, out);
  }
}

void find_cpu_bound_gap(const FindingContext& finding) {
  for (const StageView& stage : finding.stages) {
    const HostIdle& idle = stage.host;
    if (finding.preparation(stage.stage) != nullptr) continue;
    const bool by_sums = idle.code_ns > 0 && idle.code_ns >= kGapShareMin * stage.own_ns();
    if (idle.code_ns < kGainMin * stage.own_ns()) continue;
    if (!finding.worth(stage, "no-host-gaps", by_sums)) continue;
    Finding& out = finding.add("cpu-bound-gap", &stage,
                               fmt::format("{}the GPU waits {} of the time for host code between launches",
                                           stage.label(), format_percent(idle.code_ns / stage.wall_ns())),
                               idle.code_ns);
    out.evidence = {measured("idle per step behind host code", stage.per_step_ms(idle.code_ns), Unit::kMs),
                    measured("single gaps of 200 us or more", static_cast<double>(idle.long_gaps), Unit::kOne)};
    add_sites(
        finding, stage, [&](Row gap) { return finding.is_code(gap, stage); }, out);
    add_left_out(stage, out);
    finding.add_places(stage, PlaceKind::kHostCode, out);
    out.advice = {
        "Move this work off the launching thread, or do it while the GPU is busy with the previous step "
        "(prepare inputs early, sample on the GPU, detokenise in another thread)."};
    finding.bound_gaps(
        stage, idle.code_ns, [&](Row gap) { return finding.is_code(gap, stage); }, out);
  }
}

namespace {

// Waits of the host for the GPU in a step; empty where the recording does not say.
OptDouble waits_per_step(const FindingContext& finding, const StageView& stage) {
  for (const HostRecord& host : finding.report.host)
    if (host.stage == stage.timing->name && host.device == stage.timing->device)
      return static_cast<double>(host.syncs) / static_cast<double>(std::max<int64_t>(1, stage.timing->count));
  return {};
}

}  // namespace

void find_sync_bound(const FindingContext& finding) {
  for (const StageView* view : finding.with_unstaged()) {
    const StageView& stage = *view;
    const double after_ns = stage.host.drained ? stage.host.after_sync_ns : 0;
    const double sync_ns = stage.idle_ns(IdleCause::kBlockingSync) + after_ns;
    if (!finding.worth(stage, "last-wait-only", sync_ns >= kGapShareMin * stage.own_ns())) continue;
    // Where it is simulated, idle time behind the waits is a part of the gain only: nothing is launched ahead.
    const OptDouble waits_known = waits_per_step(finding, stage);
    const bool by_waits = waits_known.value_or(0) >= 2 && finding.simulated(stage, {"last-wait-only"});
    const std::string title =
        by_waits ? fmt::format("{}the host waits for the GPU {:.3g} times a step, and launches nothing ahead meanwhile",
                               stage.label(), *waits_known)
                 : fmt::format("{}blocking synchronisation leaves the GPU idle {} of the time", stage.label(),
                               format_percent(sync_ns / stage.wall_ns()));
    Finding& out = finding.add("sync-bound", &stage, title, sync_ns);
    out.evidence = {measured(stage.each("idle behind synchronisation"), stage.per_step_ms(sync_ns), Unit::kMs)};
    if (after_ns > 0) {
      out.evidence.push_back(measured("of it after the wait, until the next launch reached the GPU",
                                      stage.per_step_ms(after_ns), Unit::kMs));
      out.evidence.push_back(measured("waits per step that left the GPU without work",
                                      static_cast<double>(stage.host.after_syncs) / stage.count(), Unit::kOne));
    }
    if (waits_known) out.evidence.push_back(measured(stage.each("synchronising calls"), *waits_known, Unit::kOne));
    const auto waits = [&](Row gap) { return finding.trace().gaps.cause[gap] == IdleCause::kBlockingSync; };
    add_sites(finding, stage, waits, out);
    add_left_out(stage, out);
    finding.add_places(stage, PlaceKind::kWait, out, true);
    out.advice = {
        "Keep results on the GPU: .item(), .cpu(), .tolist(), nonzero and boolean indexing make the host wait. "
        "Sample on the device and read tokens back asynchronously, one step late.",
        "Drop synchronisation that only serves timing."};
    if (finding.trace().windows.size() > 1)
      out.advice.push_back(
          "GPUs that hand work to each other need no wait of the host: let their streams wait for the copies between "
          "them, so that all of them work at once.");
    finding.bound_gaps(
        stage, sync_ns, [&](Row gap) { return finding.is_wait(gap, stage); }, out);
  }
}

void find_allocator_churn(const FindingContext& finding) {
  const Trace& trace = finding.trace();
  std::vector<uint8_t> is_alloc(trace.strings.size());  // 0 unseen, 1 yes, 2 no
  for (const StageView* view : finding.with_unstaged()) {
    const StageView& stage = *view;
    const double idle_ns = stage.idle_ns(IdleCause::kAllocator);
    if (!finding.worth(stage, "no-allocations", idle_ns > 0 && idle_ns >= kSmallShareMin * stage.own_ns())) continue;
    int64_t calls = 0, call_ns = 0;
    HostCursor host(finding.context.groups);
    for (Row a = 0; a < trace.api_calls.size(); ++a) {
      uint8_t& verdict = is_alloc[index(trace.api_calls.name[a])];
      if (verdict == 0) verdict = api_kind_of(trace.text(trace.api_calls.name[a])) == ApiKind::kAllocator ? 1 : 2;
      if (verdict != 1 || host.stage_at(trace.api_calls.thread[a], trace.api_calls.start_ns[a]) != stage.stage)
        continue;
      ++calls;
      call_ns += trace.api_calls.dur_ns[a];
    }
    Finding& out = finding.add("allocator-churn", &stage,
                               fmt::format("{}device memory is allocated or freed through the driver{}", stage.label(),
                                           stage.whole() ? "" : " while serving"),
                               idle_ns);
    out.evidence = {
        measured(stage.each("GPU idle behind allocation calls"), stage.per_step_ms(idle_ns), Unit::kMs),
        measured(stage.each("allocation calls"), static_cast<double>(calls) / stage.count(), Unit::kOne),
        measured(stage.each("host time in them"), stage.per_step_ms(static_cast<double>(call_ns)), Unit::kMs)};
    out.advice = {
        "Warm up with the largest shapes so that the caching allocator holds the memory beforehand, keep its "
        "cache (no empty_cache), and try PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True."};
    finding.add_places(stage, PlaceKind::kAllocation, out);
    finding.bound_gaps(
        stage, idle_ns, [&](Row gap) { return trace.gaps.cause[gap] == IdleCause::kAllocator; }, out);
  }
}

void find_python_gc(const FindingContext& finding) {
  const PythonIdle idle =
      idle_behind(finding, [](std::string_view name) { return name.find("gc.collect") != std::string_view::npos; });
  if (idle.whole_ns < kSmallShareMin * finding.window_ns || idle.whole_ns == 0) return;
  double recorded_ns = 0;
  for (const auto& [name, site_ns] : idle.sites_ns) recorded_ns += site_ns;
  Finding& out = finding.add("python-gc", nullptr, "the GPU waits for Python's garbage collector", idle.whole_ns);
  out.evidence = {measured("recorded GPU idle time during gc.collect", recorded_ns / 1e6, Unit::kMs)};
  out.advice = {"Call gc.freeze() after loading the model, and collect between requests instead of inside steps."};
}

void find_first_call_cost(const FindingContext& finding) {
  constexpr double kCostMinMs = 0.5;  // shorter is within what a step varies anyway
  const std::vector<WarmUpRecord>& rows = finding.report.warm_up;
  const Steps& steps = finding.trace().steps;
  // Ranks of one process wait for each other: the device that stands for the run.
  const int32_t device = steps.empty() ? 0 : main_device(steps);
  std::map<WarmUpCause, double> cost_ms;
  double all_ms = 0, count = 0;
  for (const WarmUpRecord& row : rows) {
    if (row.device != device || !row.excess_ms) continue;
    cost_ms[row.cause] += *row.excess_ms;
    all_ms += *row.excess_ms;
    count += static_cast<double>(row.steps);
  }
  if (all_ms < kCostMinMs) return;
  Finding& out =
      finding.add("first-call-cost", nullptr,
                  fmt::format("warm-up takes {} longer than the same steps later on", format_ms(all_ms)), all_ms * 1e6);
  out.evidence = {measured("time beyond the steady level", all_ms, Unit::kMs),
                  measured("steps of warm-up", count, Unit::kOne)};
  for (const auto& [cause, ms] : cost_ms)
    out.evidence.push_back(measured(fmt::format("of it because {}", in_words(cause)), ms, Unit::kMs));
  const auto share = [&](WarmUpCause cause) { return cost_ms.count(cause) > 0 ? cost_ms[cause] / all_ms : 0; };
  constexpr double kShareMin = 0.2;
  if (on_cpu(finding.context)) {
    out.advice = {
        "Warm up before measuring or serving: on first use memory is mapped, kernels are compiled and threads start; "
        "other programs on the same cores look the same."};
    return;
  }
  out.advice = {
      "Warm up before measuring or serving, with every shape that is served: kernels are loaded, tuned and compiled on "
      "first use."};
  if (share(WarmUpCause::kModuleLoading) + share(WarmUpCause::kFirstCalls) >= kShareMin)
    out.advice.push_back("CUDA_MODULE_LOADING=EAGER loads all kernels of a module at the start of the program.");
  if (share(WarmUpCause::kCompilation) >= kShareMin)
    out.advice.push_back("Keep the caches of the compilers between runs (TORCHINDUCTOR_CACHE_DIR, TRITON_CACHE_DIR).");
}

namespace {

// What a live recording says of its own cost.
void find_measured_distortion(const FindingContext& finding) {
  const OverheadReport& overhead = *finding.report.overhead;
  const double recorded_ns = static_cast<double>(overhead.recorded_ms.ns);
  const bool slower = overhead.ci95 && (*overhead.ci95)[0] > kGainMin;
  // Not scaled: most of it happens once, when CUPTI comes. Where steps are known to take no longer, it changed nothing
  // that is shown.
  const bool busy = recorded_ns > kGainMin * finding.window_ns && recorded_ns > 0;
  const bool harmless = overhead.ci95 && (*overhead.ci95)[1] < kGainMin;
  if (!slower && (!busy || harmless)) return;
  Finding& out =
      finding.add("profiler-distortion", nullptr,
                  slower ? fmt::format("steps take {} longer while recorded", format_percent(*overhead.distortion_frac))
                         : "recording changed the times it shows",
                  0);
  if (slower) {
    const double of_step = *overhead.distortion_frac / (1 + *overhead.distortion_frac);  // that is the recorder's
    out.severity = std::min(finding_rule("profiler-distortion").most, severity_of(of_step));
  }
  if (overhead.distortion_frac) {
    out.evidence.push_back(measured("steps take longer while recorded, by", *overhead.distortion_frac, Unit::kFrac));
    out.evidence.push_back(measured("lower end of its 95 % interval", (*overhead.ci95)[0], Unit::kFrac));
    out.evidence.push_back(measured("upper end", (*overhead.ci95)[1], Unit::kFrac));
  }
  out.evidence.push_back(measured("overhead that the recorder lists itself", recorded_ns / 1e6, Unit::kMs));
  out.advice = {
      "Take step times from `llmprof run --mode light`, which records nothing per launch; GPU durations of this "
      "recording are not affected by more than a few percent.",
      "Record a window instead of the whole run (--capture-range, --steps)."};
}

}  // namespace

namespace {

// Eager decoding that waits for the host: what the recorder adds to every operator and call is part of the wait.
bool eager_and_waiting(const FindingContext& finding, const StageView& stage) {
  const bool eager = !stage.graph_replay() && finding.trace().ops.size() > finding.trace().gpu_ops.size();
  return stage.group->kind == StageKind::kDecode && eager && stage.host_idle_ns() >= kLaunchIdleMin * stage.own_ns();
}

// Whether the recorded steps of a stage are known, by a run without the recorder, to take hardly longer than others.
bool known_to_be_alike(const FindingContext& finding, const StageView& stage) {
  for (const DistortionRecord& row : finding.report.overhead->stages)
    if (row.stage == stage.timing->name) return row.ci95_high_frac < kGainMin;
  return false;
}

// Of the device to which the operators are given, where a stage has several.
void add_host_records(const FindingContext& finding, const StageView& stage, Finding& out) {
  const HostRecord* most = nullptr;
  for (const HostRecord& host : finding.report.host)
    if (host.stage == stage.timing->name && (most == nullptr || host.operators > most->operators)) most = &host;
  if (most == nullptr) return;
  const double steps = static_cast<double>(std::max<int64_t>(1, stage.timing->count));
  out.evidence.push_back(
      measured("operators recorded per step", static_cast<double>(most->operators) / steps, Unit::kOne));
  out.evidence.push_back(measured("CUDA launch and wait calls recorded per step",
                                  static_cast<double>(most->launches + most->syncs) / steps, Unit::kOne));
}

}  // namespace

void find_profiler_distortion(const FindingContext& finding) {
  constexpr double kProfilerShareMin = 0.05;
  if (!finding.report.overhead) return;
  if (finding.live()) find_measured_distortion(finding);
  const double recorded_ns = static_cast<double>(finding.report.overhead->recorded_ms.ns);
  for (const StageView& stage : finding.stages) {
    const double profiler_ns = stage.idle_ns(IdleCause::kProfiler);
    const bool itself = profiler_ns >= kProfilerShareMin * stage.wall_ns();
    const bool eager = !finding.live() && eager_and_waiting(finding, stage) && !known_to_be_alike(finding, stage);
    if (!itself && !eager) continue;
    std::string title = stage.label();
    if (itself)
      title += fmt::format("{} of its time the GPU waits while the profiler itself works",
                           format_percent(profiler_ns / stage.wall_ns()));
    if (eager)
      title +=
          itself ? ", and host times are longer than without it" : "host times are longer than without the recorder";
    Finding& out = finding.add("profiler-distortion", &stage, std::move(title), 0);
    if (itself)
      out.evidence.push_back(
          measured("idle per step while the profiler worked", stage.per_step_ms(profiler_ns), Unit::kMs));
    if (eager) add_host_records(finding, stage, out);
    out.evidence.push_back(
        measured("overhead that the recording lists itself, whole recording", recorded_ns / 1e6, Unit::kMs));
    out.advice = {
        "Compare with a run without the profiler before believing absolute host times: eager decode of an 8B "
        "model on an H200 took 17 ms per token without torch.profiler and 25.9 ms with it. GPU durations "
        "are not affected.",
        "Record without with_stack and profile_memory, and with few steps, to disturb less."};
    if (itself)
      out.advice.insert(
          out.advice.begin(),
          "That time is the profiler's and no reason to change the program: other findings leave it out.");
  }
}

}  // namespace llmprof
