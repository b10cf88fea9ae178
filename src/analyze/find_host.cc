// Findings about the host: launches, gaps, waits, allocator calls, start-up.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "analyze/finding.h"
#include "base/text_table.h"
#include "derive/host_calls.h"

namespace llmprof {
namespace {

// Below a quarter of the wall time, launch gaps are not what a stage waits for most.
constexpr double kLaunchIdleMin = 0.25;
// Up to this much idle time per launch call the gaps are made of launches and dispatch; above, of other host work.
constexpr double kIdlePerLaunchNsMax = 60'000;
// Causes smaller than this share of a stage are not worth a line.
constexpr double kGapShareMin = 0.10;
constexpr double kSmallShareMin = 0.01;

// The idle cause that holds most of the host's part.
const IdleRecord* top_cause(const FindingContext& finding, const StageView& stage) {
  const IdleRecord* best = nullptr;
  for (const IdleRecord& row : finding.report.idle)
    if (row.stage == stage.timing->name && row.device == stage.timing->device && row.cause != "graph-internal" &&
        (best == nullptr || row.total_ms.ns > best->total_ms.ns))
      best = &row;
  return best;
}

void add_sites(const FindingContext& finding, const StageView& stage, std::string_view kind, size_t limit,
               Finding& out) {
  for (const IdleSiteRecord& site : finding.report.idle_sites) {
    if (limit == 0) return;
    if (site.stage != stage.timing->name || site.device != stage.timing->device || site.kind != kind) continue;
    out.evidence.push_back(
        measured(fmt::format("GPU idle while the host was in {}", site.site), site.total_ms.ms(), "ms"));
    --limit;
  }
}

// Whether blocking calls, and not slow launching, empty the GPU's queue: the gaps after them make up most of what the
// host costs. Told only of live recordings, whose API calls are as short as without them.
bool waits_drain_the_gpu(const FindingContext& finding, const StageView& stage) {
  return finding.live() && stage.after_sync_ns * 2 > stage.host_idle_ns() - stage.long_host_ns;
}

// GPU idle time behind Python functions of some kind, after the start of serving.
struct PythonIdle {
  double whole_ns = 0;                  // of the whole recording
  std::map<StringId, double> sites_ns;  // of the recorded time, by function
};
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
    // Of steps that are recorded in part, their like in complete ones stand for them.
    if (groups.stages[stage].missing != 2) out.whole_ns += finding.whole_ns(stage, gap_ns);
    out.sites_ns[name] += gap_ns;
  }
  return out;
}

// Less hides in the noise of start-up.
bool tells_preparing(const FindingContext& finding, const PythonIdle& idle) {
  constexpr double kShareMin = 0.05;
  return !idle.sites_ns.empty() && idle.whole_ns >= kShareMin * finding.window_ns;
}

// Host code between steps is a finding of its own where no Python frame tells what it is.
bool between_steps(const FindingContext& finding) { return finding.live() && finding.trace().python_calls.empty(); }

}  // namespace

void find_launch_bound(const FindingContext& finding) {
  for (const StageView& stage : finding.stages) {
    const double after_sync_ns = waits_drain_the_gpu(finding, stage) ? static_cast<double>(stage.after_sync_ns) : 0;
    const double idle_ns = static_cast<double>(stage.host_idle_ns() - stage.long_host_ns) - after_sync_ns;
    const double launches = static_cast<double>(stage.group->launches);
    if (launches == 0 || idle_ns < kLaunchIdleMin * stage.wall_ns()) continue;
    if (idle_ns > kIdlePerLaunchNsMax * launches) continue;
    // Idle time in which another GPU has to work first is not the host's.
    const double gain_ns = std::min(idle_ns, stage.wall_ns() - stage.least_gpu_ns());
    Finding& out = finding.add(
        "launch-bound", &stage,
        fmt::format("{}: the GPU is busy {} of the time and waits {} for the host to launch work", stage.timing->name,
                    format_percent(stage.busy_ns() / stage.wall_ns()), format_percent(idle_ns / stage.wall_ns())),
        gain_ns);
    out.evidence = {
        measured("GPU busy share", stage.busy_ns() / stage.wall_ns(), "frac"),
        measured("GPU busy per step", stage.per_step_ms(stage.busy_ns()), "ms"),
        measured("idle per step because the host had not launched yet", stage.per_step_ms(idle_ns), "ms"),
        measured("launch calls per step", launches / stage.count(), "1"),
        measured("host time lost per launch", idle_ns / launches / 1e3, "us"),
    };
    if (stage.least_gpu_ns() > stage.busy_ns())
      out.evidence.push_back(measured("GPU time per step at least, one GPU waiting for another",
                                      stage.per_step_ms(stage.least_gpu_ns()), "ms"));
    if (const IdleRecord* cause = top_cause(finding, stage); cause != nullptr)
      out.evidence.push_back(measured(fmt::format("of it per step in {}", cause->cause),
                                      stage.per_step_ms(static_cast<double>(cause->total_ms.ns)), "ms"));
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
    out.advice.push_back("The recorder slows the host: without it the gaps are shorter, the GPU's part stays.");
    out.bound =
        GainBound{stage.time_metric(), stage.per_step_ms(stage.wall_ns()), stage.per_step_ms(stage.least_gpu_ns())};
  }
}

void find_cpu_bound_gap(const FindingContext& finding) {
  // What host-preprocessing tells is not told again.
  const bool between = between_steps(finding);
  const bool preparing = !between && tells_preparing(finding, idle_behind(finding, prepares_inputs));
  for (const StageView& stage : finding.stages) {
    const int64_t elsewhere = between ? stage.boundary_gaps : preparing ? stage.long_prepare_gaps : 0;
    const int64_t long_elsewhere_ns = between ? stage.boundary_ns : preparing ? stage.long_prepare_ns : 0;
    const int64_t elsewhere_ns = between ? stage.boundary_ns : preparing ? stage.prepare_ns : 0;
    double gap_ns = static_cast<double>(stage.long_host_ns - long_elsewhere_ns);
    const double host_ns = static_cast<double>(stage.host_idle_ns() - elsewhere_ns);
    const double launches = static_cast<double>(std::max<int64_t>(1, stage.group->launches));
    // Short rows of one long gap (cut by cause) add up to much idle time per launch.
    if (host_ns - gap_ns > kIdlePerLaunchNsMax * launches) gap_ns = host_ns;
    if (gap_ns < kGapShareMin * stage.wall_ns()) continue;
    Finding& out = finding.add("cpu-bound-gap", &stage,
                               fmt::format("{}: the GPU waits {} of the time for host code between launches",
                                           stage.timing->name, format_percent(gap_ns / stage.wall_ns())),
                               gap_ns);
    out.evidence = {
        measured("idle per step behind host code", stage.per_step_ms(gap_ns), "ms"),
        measured("single gaps of 200 us or more", static_cast<double>(stage.long_host_gaps - elsewhere), "1")};
    add_sites(finding, stage, "python", 3, out);
    add_sites(finding, stage, "operator", 2, out);
    out.advice = {
        "Move this work off the launching thread, or do it while the GPU is busy with the previous step "
        "(prepare inputs early, sample on the GPU, detokenise in another thread)."};
    out.bound =
        GainBound{stage.time_metric(), stage.per_step_ms(stage.wall_ns()), stage.per_step_ms(stage.wall_ns() - gap_ns)};
  }
}

void find_sync_bound(const FindingContext& finding) {
  for (const StageView& stage : finding.stages) {
    const double after_ns = waits_drain_the_gpu(finding, stage) ? static_cast<double>(stage.after_sync_ns) : 0;
    const double sync_ns = static_cast<double>(stage.group->idle_of(IdleCause::kBlockingSync)) + after_ns;
    if (sync_ns < kGapShareMin * stage.wall_ns()) continue;
    Finding& out = finding.add("sync-bound", &stage,
                               fmt::format("{}: blocking synchronisation leaves the GPU idle {} of the time",
                                           stage.timing->name, format_percent(sync_ns / stage.wall_ns())),
                               sync_ns);
    out.evidence = {measured("idle per step behind synchronisation", stage.per_step_ms(sync_ns), "ms")};
    if (after_ns > 0) {
      out.evidence.push_back(
          measured("of it after the wait, until the next launch reached the GPU", stage.per_step_ms(after_ns), "ms"));
      out.evidence.push_back(measured("waits per step that left the GPU without work",
                                      static_cast<double>(stage.after_syncs) / stage.count(), "1"));
    }
    for (const HostRecord& host : finding.report.host)
      if (host.stage == stage.timing->name && host.device == stage.timing->device)
        out.evidence.push_back(
            measured("synchronising calls per step", static_cast<double>(host.syncs) / stage.count(), "1"));
    for (const IdleRecord& row : finding.report.idle) {
      if (row.stage != stage.timing->name || row.device != stage.timing->device ||
          row.cause != idle_cause_name(IdleCause::kBlockingSync))
        continue;
      if (row.top_operator)
        out.evidence.push_back(measured("of it in operator " + *row.top_operator, *row.top_operator_ms, "ms"));
      if (row.top_python) out.evidence.push_back(measured("of it in " + *row.top_python, *row.top_python_ms, "ms"));
      if (row.top_api) out.evidence.push_back(measured("of it in call " + *row.top_api, *row.top_api_ms, "ms"));
    }
    out.advice = {
        "Keep results on the GPU: .item(), .cpu(), .tolist(), nonzero and boolean indexing make the host wait. "
        "Sample on the device and read tokens back asynchronously, one step late.",
        "Drop synchronisation that only serves timing."};
    out.bound = GainBound{stage.time_metric(), stage.per_step_ms(stage.wall_ns()),
                          stage.per_step_ms(stage.wall_ns() - sync_ns)};
  }
}

void find_allocator_churn(const FindingContext& finding) {
  const Trace& trace = finding.trace();
  std::vector<uint8_t> is_alloc(trace.strings.size());  // 0 unseen, 1 yes, 2 no
  for (const StageView& stage : finding.stages) {
    const double idle_ns = static_cast<double>(stage.group->idle_of(IdleCause::kAllocator));
    if (idle_ns < kSmallShareMin * stage.wall_ns()) continue;
    int64_t calls = 0, call_ns = 0;
    HostCursor host(finding.context.groups);
    for (Row a = 0; a < trace.api_calls.size(); ++a) {
      uint8_t& verdict = is_alloc[index(trace.api_calls.name[a])];
      if (verdict == 0) verdict = api_kind_of(trace.text(trace.api_calls.name[a])) == ApiKind::kAllocator ? 1 : 2;
      if (verdict != 1 || host.stage_at(trace.api_calls.start_ns[a]) != stage.stage) continue;
      ++calls;
      call_ns += trace.api_calls.dur_ns[a];
    }
    Finding& out = finding.add(
        "allocator-churn", &stage,
        fmt::format("{}: device memory is allocated or freed through the driver while serving", stage.timing->name),
        idle_ns);
    out.evidence = {measured("GPU idle behind allocation calls per step", stage.per_step_ms(idle_ns), "ms"),
                    measured("allocation calls per step", static_cast<double>(calls) / stage.count(), "1"),
                    measured("host time in them per step", stage.per_step_ms(static_cast<double>(call_ns)), "ms")};
    out.advice = {
        "Warm up with the largest shapes so that the caching allocator holds the memory beforehand, keep its "
        "cache (no empty_cache), and try PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True."};
    out.bound = GainBound{stage.time_metric(), stage.per_step_ms(stage.wall_ns()),
                          stage.per_step_ms(stage.wall_ns() - idle_ns)};
  }
}

// Live recordings without Python frames: the GPU waits before the first activity of a step, outside every step, or in a
// stage of the program that launches nothing, for host code that is in no CUDA call.
void find_host_between_steps(const FindingContext& finding) {
  constexpr double kShareMin = 0.10;  // shorter pauses are what any scheduler needs
  const Trace& trace = finding.trace();
  const Gaps& gaps = trace.gaps;
  const std::vector<StageGroup>& groups = finding.context.groups.stages;
  double within_ns = 0, outside_ns = 0, whole_ns = 0;
  std::map<uint32_t, double> alone_ns;  // stages without GPU activity
  int64_t count = 0;
  for (const StageView& stage : finding.stages) {
    within_ns += static_cast<double>(stage.boundary_ns);
    whole_ns += finding.whole_ns(stage.stage, static_cast<double>(stage.boundary_ns));
    count += stage.boundary_gaps;
  }
  for (Row g = 0; g < gaps.size(); ++g) {
    const uint32_t stage = gaps.step[g] != kNoRow ? finding.context.groups.stage_of_step[gaps.step[g]] : UINT32_MAX;
    if (gaps.cause[g] == IdleCause::kHostWork && stage != UINT32_MAX && groups[stage].gpu_ops == 0 &&
        gaps.dur_ns[g] >= kLongGapNs && !finding.before_serving(gaps.device[g], gaps.start_ns[g])) {
      alone_ns[stage] += static_cast<double>(gaps.dur_ns[g]);
      whole_ns += finding.whole_ns(stage, static_cast<double>(gaps.dur_ns[g]));
      ++count;
    }
    if (gaps.cause[g] != IdleCause::kNoWork || gaps.dur_ns[g] < kLongGapNs || gaps.next_gpu_op[g] == kNoRow) continue;
    // Between two steps: before the first one the program starts, after the last one it ends.
    const bool before_step = trace.gpu_links.step[gaps.next_gpu_op[g]] != kNoRow;
    const bool first = trace.steps.empty() || gaps.start_ns[g] < trace.steps.start_ns[0];
    if (!before_step || first || finding.before_serving(gaps.device[g], gaps.start_ns[g])) continue;
    outside_ns += static_cast<double>(gaps.dur_ns[g]);
    whole_ns +=
        finding.whole_ns(finding.context.groups.unattributed(gaps.device[g]), static_cast<double>(gaps.dur_ns[g]));
    ++count;
  }
  double total_ns = within_ns + outside_ns;
  for (const auto& [stage, ns] : alone_ns) total_ns += ns;
  if (count == 0 || whole_ns < kShareMin * finding.window_ns) return;
  Finding& out = finding.add("host-preprocessing", nullptr,
                             fmt::format("the GPU waits {} of the time for host code between steps",
                                         format_percent(whole_ns / finding.window_ns)),
                             whole_ns);
  out.evidence = {measured("idle before the first activity of recorded steps", within_ns / 1e6, "ms"),
                  measured("recorded idle time outside every step", outside_ns / 1e6, "ms"),
                  measured("such gaps of 200 us or more", static_cast<double>(count), "1"),
                  measured("mean length", total_ns / static_cast<double>(count) / 1e6, "ms")};
  for (const auto& [stage, ns] : alone_ns)
    out.evidence.push_back(measured(
        fmt::format("idle in {}, which launches nothing", std::string(finding.trace().text(groups[stage].name))),
        ns / 1e6, "ms"));
  out.advice = {
      "Prepare the next inputs (tokenising, image processing, padding, scheduling) while the GPU works: in another "
      "process or thread, or one step ahead.",
      "If the program waits for requests there, nothing is lost; `llmprof run --torch` names the Python code."};
}

void find_host_preprocessing(const FindingContext& finding) {
  if (between_steps(finding)) return find_host_between_steps(finding);
  // Only recorded Python frames can tell tokenising and image processing from any other wait.
  const PythonIdle idle = idle_behind(finding, prepares_inputs);
  if (!tells_preparing(finding, idle)) return;
  Finding& out = finding.add("host-preprocessing", nullptr,
                             fmt::format("the GPU waits {} of the time for tokenising or image processing",
                                         format_percent(idle.whole_ns / finding.window_ns)),
                             idle.whole_ns);
  for (const auto& [name, site_ns] : idle.sites_ns)
    out.evidence.push_back(
        measured("recorded GPU idle time while the host was in " + std::string(finding.trace().text(name)),
                 site_ns / 1e6, "ms"));
  std::stable_sort(out.evidence.begin(), out.evidence.end(),
                   [](const Evidence& a, const Evidence& b) { return a.value > b.value; });
  constexpr size_t kSitesMost = 5;
  if (out.evidence.size() > kSitesMost) out.evidence.resize(kSitesMost);
  out.advice = {
      "Prepare inputs in other processes while the GPU serves earlier requests, use the compiled tokeniser, "
      "and resize images on the GPU."};
}

void find_python_gc(const FindingContext& finding) {
  const PythonIdle idle =
      idle_behind(finding, [](std::string_view name) { return name.find("gc.collect") != std::string_view::npos; });
  if (idle.whole_ns < kSmallShareMin * finding.window_ns || idle.whole_ns == 0) return;
  double recorded_ns = 0;
  for (const auto& [name, site_ns] : idle.sites_ns) recorded_ns += site_ns;
  Finding& out = finding.add("python-gc", nullptr, "the GPU waits for Python's garbage collector", idle.whole_ns);
  out.evidence = {measured("recorded GPU idle time during gc.collect", recorded_ns / 1e6, "ms")};
  out.advice = {"Call gc.freeze() after loading the model, and collect between requests instead of inside steps."};
}

void find_first_call_cost(const FindingContext& finding) {
  if (!finding.report.latency) return;
  const double warmup_ms = finding.report.latency->warmup_ms.value_or(0);
  if (warmup_ms < 0.5) return;  // shorter is within what a step varies anyway
  Finding& out = finding.add("first-call-cost", nullptr,
                             fmt::format("first steps take {} longer than the ones after them", format_ms(warmup_ms)),
                             warmup_ms * 1e6, FindingSeverity::kMinor);
  out.evidence = {measured("extra time of first steps over the median of the others", warmup_ms, "ms")};
  const Trace& trace = finding.trace();
  int64_t loads = 0, load_ns = 0;
  for (Row a = 0; a < trace.api_calls.size(); ++a) {
    const std::string_view name = trace.text(trace.api_calls.name[a]);
    if (name.find("ModuleLoad") == std::string_view::npos && name.find("LibraryLoad") == std::string_view::npos)
      continue;
    ++loads;
    load_ns += trace.api_calls.dur_ns[a];
  }
  if (loads > 0) {
    out.evidence.push_back(measured("module loading calls", static_cast<double>(loads), "1"));
    out.evidence.push_back(measured("host time in them", static_cast<double>(load_ns) / 1e6, "ms"));
  }
  out.advice = {
      "Warm up before measuring or serving: kernels are loaded, tuned and compiled on first use. Leave first "
      "steps out of averages."};
}

namespace {

// What a live recording says of its own cost.
void find_measured_distortion(const FindingContext& finding) {
  constexpr double kDistortionMin = 0.05;
  const OverheadReport& overhead = *finding.report.overhead;
  const double recorded_ns = static_cast<double>(overhead.recorded_ms.ns);
  const bool slower = overhead.ci95 && (*overhead.ci95)[0] > kDistortionMin;
  // Not scaled: most of it happens once, when CUPTI comes.
  const bool busy = recorded_ns > kDistortionMin * finding.window_ns && recorded_ns > 0;
  if (!slower && !busy) return;
  Finding& out =
      finding.add("profiler-distortion", nullptr, "recording changed the times it shows", 0, FindingSeverity::kInfo);
  if (slower) out.severity = FindingSeverity::kMinor;
  if (overhead.distortion_frac) {
    out.evidence.push_back(
        measured("step time with over without recording, less 1", *overhead.distortion_frac, "frac"));
    out.evidence.push_back(measured("lower end of its 95 % interval", (*overhead.ci95)[0], "frac"));
    out.evidence.push_back(measured("upper end", (*overhead.ci95)[1], "frac"));
  }
  out.evidence.push_back(measured("overhead that the recorder lists itself", recorded_ns / 1e6, "ms"));
  out.advice = {
      "Take step times from `llmprof run --mode light`, which records nothing per launch; GPU durations of this "
      "recording are not affected by more than a few percent.",
      "Record a window instead of the whole run (--capture-range, --steps)."};
}

}  // namespace

void find_profiler_distortion(const FindingContext& finding) {
  const Trace& trace = finding.trace();
  if (!finding.report.overhead) return;
  if (finding.live()) return find_measured_distortion(finding);
  const double recorded_ns = static_cast<double>(finding.report.overhead->recorded_ms.ns);
  for (const StageView& stage : finding.stages) {
    const double host_ns = static_cast<double>(stage.host_idle_ns());
    const bool eager = !stage.graph_replay() && trace.ops.size() > trace.gpu_ops.size();
    if (stage.group->kind != StageKind::kDecode || !eager || host_ns < kLaunchIdleMin * stage.wall_ns()) continue;
    Finding& out = finding.add("profiler-distortion", &stage,
                               fmt::format("{}: host times are longer than without the recorder", stage.timing->name),
                               0, FindingSeverity::kInfo);
    double operators = 0, calls = 0;
    for (const HostRecord& host : finding.report.host)
      if (host.stage == stage.timing->name) {
        operators = static_cast<double>(host.operators);
        calls = static_cast<double>(host.launches + host.syncs);
      }
    out.evidence = {measured("operators recorded per step", operators / stage.count(), "1"),
                    measured("CUDA launch and wait calls recorded per step", calls / stage.count(), "1"),
                    measured("overhead that the recording lists itself, whole recording", recorded_ns / 1e6, "ms")};
    out.advice = {
        "Compare with a run without the profiler before believing absolute host times: eager decode of an 8B "
        "model on an H200 took 17 ms per token without torch.profiler and 25.9 ms with it. GPU durations "
        "are not affected.",
        "Record without with_stack and profile_memory, and with few steps, to disturb less."};
  }
}

}  // namespace llmprof
