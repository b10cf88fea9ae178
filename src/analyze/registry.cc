#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "analyze/analysis.h"
#include "analyze/ceilings.h"
#include "analyze/given_options.h"
#include "analyze/model_formula.h"
#include "analyze/processor.h"
#include "analyze/step_recording.h"
#include "analyze/without_program.h"
#include "base/parallel.h"

namespace llmprof {
namespace {

// Fills: the parts of the Report it writes. Phase 1 reads what phase 0 wrote.
constexpr Analysis kAnalyses[] = {
    {"operators", "framework operators by name and stage (operators)", analyze_operators, 0},
    {"latency", "TTFT, TPOT, ITL, tokens per second, warm-up (latency)", analyze_latency, 0},
    {"stages", "time, FLOPs, MFU, MBU, place on the roofline and bound per stage (stages)", analyze_stages, 0},
    {"ranks", "ranks of one job, who waits for whom in collectives, and their bandwidth (ranks, joined_collectives)",
     analyze_ranks, 0},
    {"stage-steps", "medians and means of a step of each stage: length, busy, idle, kernels, copies (stage_steps)",
     analyze_stage_steps, 0},
    {"warm-up", "steps that are in no other figure, why, and what they cost (warm_up)", analyze_warm_up, 0},
    {"kernels", "most expensive kernels, and kernels against the roofline (kernels_topk, roofline)", analyze_kernels,
     0},
    {"profiled-kernels",
     "what Nsight Compute counted of kernels, and their roofline (profiled_kernels, kernel_stalls, roofline)",
     analyze_profiled_kernels, 1},
    {"logged-products",
     "matrix products by the logs of cuBLAS and cuBLASLt, and their times in a recording beside (logged_products)",
     analyze_logged_products, 0},
    {"client-runs", "what clients of a server saw, by its benchmarks: TTFT, TPOT, ITL, latency, rates (client_runs)",
     analyze_client_runs, 0},
    {"client-stages",
     "what the GPU did while requests of a client waited, and how their clocks agree (client_stages, client_clocks)",
     analyze_client_stages, 0},
    {"server-metrics",
     "rates, times and states by metrics pages of servers (server_figures, server_distributions, metrics_pages)",
     analyze_server_metrics, 0},
    {"nccl-log",
     "how ranks are connected, collectives and warnings by NCCL's log (nccl_ranks, nccl_links, nccl_collectives, "
     "nccl_choices, nccl_warnings)",
     analyze_nccl_log, 0},
    {"nccl-inspector", "times and bandwidths of operations by NCCL's Inspector (nccl_operations)",
     analyze_nccl_inspector, 0},
    {"engine",
     "queries and layers of TensorRT's engines by what trtexec exports (engine_latency, engine_profiles, "
     "engine_layers)",
     analyze_engine, 0},
    {"proton",
     "scopes and kernels by Triton's Proton (proton_profiles, proton_gpus, proton_scopes, proton_kernels, "
     "proton_metrics)",
     analyze_proton, 0},
    {"launch-sites", "call stacks at which the most expensive kernels were seen to be launched (launch_sites)",
     analyze_launch_sites, 0},
    {"categories", "operation, time, share, bottleneck per stage (categories)", analyze_categories, 0},
    {"idle", "GPU idle time by cause, and where the host was meanwhile (idle, idle_sites)", analyze_idle, 0},
    {"host", "host time in operators, launches and waits against GPU time (host)", analyze_host, 0},
    {"host-places", "Python code that waits, copies, allocates or keeps the GPU waiting (host_places)",
     analyze_host_places, 0},
    {"launch-places", "GPU time by the Python code that launches it (launch_places)", analyze_launch_places, 0},
    {"critical-path",
     "what the time of a step consists of, and how well its replay gives it back (critical_path, "
     "critical_path_work)",
     analyze_critical_path, 0},
    {"what-if", "what steps would take with the changes that --what-if names, by replay (what_ifs)", analyze_what_ifs,
     0},
    {"telemetry", "power, energy, clock, temperature, throttling and counters over the window (telemetry)",
     analyze_telemetry, 0},
    {"memory", "device memory peaks, allocating operators, timeline (memory)", analyze_memory, 0},
    {"memory-snapshot",
     "PyTorch's allocator by its snapshots and statistics: held, used, by which code, at the peak (allocators, "
     "memory_places, largest_blocks, memory_ranges, out_of_memory)",
     analyze_memory_snapshot, 0},
    {"overhead", "what recording did to step times, and what it says about its own cost (overhead)", analyze_overhead,
     1},
    {"coverage", "how much of the recording the answers rest on (coverage)", analyze_coverage, 0},
    {"model-formula", "the model by its configuration: FLOPs and bytes by formula, cross-check (model, stages)",
     analyze_model_formula, 1},
    {"joined-files", "files joined to the recording, by what, and how much of them was found in it (joined_files)",
     analyze_joined_files, 2},
    {"diagnose", "findings with evidence, advice and bounds (findings)", diagnose, 2},
};
constexpr int kLastPhase = 2;

void add_diagnostics(const Trace& trace, const Diagnostics& diagnostics, Report& report) {
  for (size_t i = 0; i < kDiagnosticCount; ++i) {
    const DiagnosticId id = static_cast<DiagnosticId>(i);
    if (diagnostics.count(id) == 0) continue;
    const DiagnosticInfo& info = diagnostic_table()[i];
    DiagnosticRecord row;
    row.key = id;
    row.severity = info.severity;
    row.count = static_cast<int64_t>(diagnostics.count(id));
    row.text = info.text;
    if (id == DiagnosticId::kNoOperatorForKernel) row.text += unnamed_before_names(trace);
    for (size_t p = 0; p < diagnostics.places(id).size(); ++p)
      row.text += (is_about_options(id) ? " " : p == 0 ? " First seen: " : "; ") + diagnostics.places(id)[p];
    report.diagnostics.push_back(std::move(row));
  }
  std::stable_sort(report.diagnostics.begin(), report.diagnostics.end(),
                   [](const DiagnosticRecord& a, const DiagnosticRecord& b) { return a.severity > b.severity; });
}

void describe_source(const Trace& trace, const Groups& groups, Report& report) {
  report.source.kind = trace.source.kind;
  report.source.files = trace.source.files;
  // Importing puts it before what stands beside it.
  if (!trace.source.files.empty() && !without_recording(trace)) report.source.recording = trace.source.files.front();
  int64_t start = INT64_MAX, end = INT64_MIN;
  for (const Window& window : trace.windows) {
    start = std::min(start, window.start_ns);
    end = std::max(end, window.end_ns);
  }
  if (trace.windows.empty()) return;
  report.source.duration_ms.ns = report.source.recorded_ms.ns = end - start;
  const int64_t device = report.device ? report.device->device : trace.windows.front().device;
  for (const StageGroup& group : groups.stages)
    if (group.device == device) report.source.recorded_ms.ns -= group.not_recorded_ns;
  if (trace.base_unix_ns != 0) report.source.start_unix_ns = trace.base_unix_ns + start;
}

// Figures that are not what the requests of a benchmark, or the blocks of a snapshot, give.
void count_disagreeing(const Report& report, Diagnostics& diagnostics) {
  for (const ClientRunRecord& run : report.client_runs)
    if (run.disagreeing > 0)
      diagnostics.add(DiagnosticId::kOtherFigure, fmt::format("{}: {} of {}", run.source, run.disagreeing, run.checked),
                      static_cast<uint64_t>(run.disagreeing));
  for (const AllocatorRecord& row : report.allocators)
    if (row.disagreeing > 0)
      diagnostics.add(
          DiagnosticId::kOtherFigure,
          fmt::format("allocator of device {}: {} of {}", row.device.value_or(0), row.disagreeing, row.checked),
          static_cast<uint64_t>(row.disagreeing));
}

// The same of operations of NCCL, profiles and queries of an engine.
void count_disagreeing_rates(const Report& report, Diagnostics& diagnostics) {
  for (const EngineProfileRecord& row : report.engine_profiles)
    if (row.disagreeing > 0)
      diagnostics.add(DiagnosticId::kOtherFigure,
                      fmt::format("{}: {} of {}", row.source.value_or(""), row.disagreeing, row.checked),
                      static_cast<uint64_t>(row.disagreeing));
  for (const NcclOperationRecord& row : report.nccl_operations)
    if (row.disagreeing > 0)
      diagnostics.add(DiagnosticId::kOtherFigure,
                      fmt::format("{} of {}: {} of {}", row.operation, row.communicator, row.disagreeing, row.checked),
                      static_cast<uint64_t>(row.disagreeing));
  for (const EngineLatencyRecord& row : report.engine_latency)
    if (row.disagreeing > 0)
      diagnostics.add(DiagnosticId::kOtherFigure, fmt::format("{}: {} of {}", row.source, row.disagreeing, row.checked),
                      static_cast<uint64_t>(row.disagreeing));
}

void describe_recorded(const Trace& trace, Report& report) {
  static constexpr std::array<const char*, 4> kLevels = {"off", "light", "default", "deep"};
  const Recorded& recorded = trace.recorded;
  for (Row row = 0; row < recorded.size(); ++row)
    report.recorded.push_back({recorded.process_id[row], trace.base_unix_ns + recorded.start_ns[row],
                               recorded.dur_ns[row], kLevels[static_cast<size_t>(recorded.level[row])],
                               std::string(trace.text(recorded.reason[row]))});
}

// Analyses of what stands beside recordings, or alone.
bool has_no_place_in_time(const Analysis& analysis) {
  return analysis.run == analyze_profiled_kernels || analysis.run == analyze_logged_products ||
         analysis.run == analyze_client_runs || analysis.run == analyze_server_metrics ||
         analysis.run == analyze_nccl_log || analysis.run == analyze_nccl_inspector || analysis.run == analyze_engine ||
         analysis.run == analyze_proton || analysis.run == analyze_memory_snapshot;
}

// Leaves so many rows of each device and moment, which stand together.
template <class Record>
void cut_of_moments(IfAny<std::vector<Record>>& rows, size_t rows_most) {
  std::map<std::pair<int64_t, std::string>, size_t> seen;
  std::erase_if(rows, [&](const Record& row) { return ++seen[{row.device, row.moment}] > rows_most; });
}

// Where no GPU was used every question about it has one answer, and what to do is one thing.
CannotTell about_no_gpu(const Trace& trace) {
  const std::map<std::string, std::string>::const_iterator cpus = trace.metadata.find("host.cpus");
  return {"What did a GPU do?",
          fmt::format("no GPU work seen, and no CUDA call. Times are those of the ranges of {} thread{}{}",
                      trace.threads.size(), trace.threads.size() == 1 ? "" : "s",
                      cpus != trace.metadata.end() ? ", on a machine with " + cpus->second + " CPUs" : ""),
          "if it should use a GPU, `llmprof doctor` says what is missing. On a CPU llmprof sees kernels of its own "
          "workload only: `llmprof workload --device cpu --record run.llmprof`, then `llmprof analyze run.llmprof`; "
          "perf record samples any program"};
}

}  // namespace

std::span<const Analysis> analyses() { return kAnalyses; }

Result<Report> analyze(const Trace& trace, const AnalyzeOptions& options) {
  Report report;
  report.tool_version = LLMPROF_VERSION;
  Diagnostics diagnostics = trace.diagnostics;
  std::vector<CannotTell> device_notes;
  LLMPROF_ASSIGN(report.device, describe_device(trace, options, diagnostics, device_notes));
  LLMPROF_CHECK(check_model_options(options));
  const Groups groups = group_trace(trace);
  describe_source(trace, groups, report);
  // What another recorder costs is not known.
  const bool costs_known = report.device && is_live_recording(trace);
  const RecorderCosts costs = costs_known ? report.device->recorder_ns : RecorderCosts();
  const auto best = costs.find(kHostPaceCost);
  const HostPace host_pace(trace, best == costs.end() ? 0 : best->second.plain_ns);
  const ReplayedSteps replayed = replay_steps(trace, costs, host_pace);
  const UndisturbedTimes undisturbed(trace, groups, replayed, costs, host_pace);
  report.undisturbed = undisturbed.rows();
  report.steps = list_steps(trace, undisturbed, host_pace);
  for (const HostPace::Probed& of : host_pace.probed())
    report.host_pace.push_back({of.process_id, of.probes, of.best_ns, of.slow_frac, of.waited_frac});
  describe_recorded(trace, report);
  const Context context{trace,
                        options,
                        groups,
                        report.device ? &*report.device : nullptr,
                        costs,
                        replayed,
                        undisturbed,
                        host_pace,
                        launch_places(trace, groups),
                        match_products(trace)};
  if (report.device) {
    check_ceilings(context, *report.device, diagnostics);
    name_arithmetic(trace, groups, *report.device);
  }
  std::vector<std::vector<CannotTell>> notes(std::size(kAnalyses));
  for (int phase = 0; phase <= kLastPhase; ++phase)
    parallel_for(std::size(kAnalyses), [&](size_t i) {
      if (kAnalyses[i].phase == phase) kAnalyses[i].run(context, report, notes[i]);
    });
  for (size_t i = 0; i < std::size(kAnalyses); ++i)
    if (kAnalyses[i].run == analyze_latency && !report.latency)
      for (const CannotTell& row : notes[i]) report.why_no_latency.push_back(row.why);
  if (report.device) take_arithmetic_of_stages(report.stages, *report.device);
  count_disagreeing(report, diagnostics);
  count_disagreeing_rates(report, diagnostics);
  check_given_options(context, report, diagnostics);
  report.cannot_tell = std::move(device_notes);
  // Of what has no place in time, questions about time have one answer.
  const bool profiled_alone = profiled_only(trace);
  const bool no_gpu = no_gpu_work(trace);
  if (no_gpu) report.cannot_tell.push_back(about_no_gpu(trace));
  for (size_t i = 0; i < std::size(kAnalyses); ++i)
    if (profiled_alone ? has_no_place_in_time(kAnalyses[i]) : !no_gpu || kAnalyses[i].run == analyze_latency)
      for (CannotTell& row : notes[i]) report.cannot_tell.push_back(std::move(row));
  add_diagnostics(trace, diagnostics, report);
  keep_top(report, options.top);
  report.conservation = check_conservation(trace, report);
  return report;
}

void keep_top(Report& report, size_t rows_most) {
  if (rows_most == 0) return;
  const auto cut = [rows_most](auto& rows) {
    if (rows.size() > rows_most) rows.resize(rows_most);
  };
  cut(report.kernels_topk);
  cut(report.roofline);  // whose kernels need not be among those
  if (report.memory) cut(report.memory->operators);
  cut_of_moments(report.memory_places, rows_most);
  cut_of_moments(report.largest_blocks, rows_most);
  std::set<std::string> kernels;
  std::erase_if(report.launch_sites, [&](const LaunchSiteRecord& row) {
    if (kernels.size() == rows_most && kernels.count(row.kernel) == 0) return true;
    kernels.insert(row.kernel);
    return false;
  });
}

}  // namespace llmprof
