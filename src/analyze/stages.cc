// The stage table: time, work, MFU, MBU, place on the roofline, and what bounds each stage.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "analyze/analysis.h"
#include "analyze/model_formula.h"
#include "analyze/processor.h"
#include "analyze/roof.h"
#include "analyze/telemetry.h"
#include "derive/recorded_spans.h"
#include "derive/steps.h"
#include "derive/whole_graphs.h"

namespace llmprof {

namespace {

// Below this share of GEMM, convolution and attention time with recorded shapes, a stage's FLOPs would be a lower bound
// that reads like a total; they are left out. One unshaped helper GEMM per step stays well inside it.
constexpr double kFlopCoverageMin = 0.95;
// A bound is named if it explains at least half of the wall time; otherwise the stage is "mixed", if all bounds
// together explain that much.
constexpr double kBoundShareMin = 0.5;
// From this share of host code on, a stage before a prompt is what the host does alone.
constexpr double kHostAloneMin = 0.95;

// From this share of transfers on that run beside a stage, they hide what it waits for.
constexpr double kHiddenMin = 0.2;

struct StageSums {
  double flops = 0, flops_full = 0, bytes = 0, weight_bytes = 0, kv_bytes = 0;
  double compute_ns = 0;       // arithmetic at peak
  double roof_compute_ns = 0;  // at the roof: measured where known
  bool peaks_known = true;
  std::array<double, static_cast<size_t>(DType::kCount)> flops_by_dtype{};
  double arithmetic_ns = 0, covered_ns = 0, other_ns = 0;
  double gemm_flops = 0, gemm_ns = 0, gemm_covered_ns = 0;
  double gemm_compute_ns = 0;                                         // part of compute_ns
  std::array<double, static_cast<size_t>(Bound::kCount)> bound_ns{};  // kernel time by Bound
  double hidden_ns = 0;  // transfers that other streams' kernels hide: in no bound
  double far_ns = 0;     // part of that by latency in kernels that are not short
};

std::vector<StageSums> sum_stages(const Context& context) {
  const Groups& groups = context.groups;
  const Works& works = context.trace.works;
  std::vector<StageSums> all(groups.stages.size());
  const StringId whole_graph = whole_graph_name(context.trace);
  for (uint32_t k = 0; k < groups.kernels.size(); ++k) {
    const KernelKey& key = groups.kernel_keys.key(k);
    const KernelSums& kernel = groups.kernels[k];
    StageSums& sums = all[key.stage];
    const double total_ns = static_cast<double>(kernel.total_ns), calls = static_cast<double>(kernel.calls);
    const Bound bound = kernel_bound(context, k);
    const bool transfer = bound == Bound::kCopy || bound == Bound::kComm;
    if (transfer) sums.hidden_ns += total_ns - static_cast<double>(kernel.exposed_ns);
    sums.bound_ns[static_cast<size_t>(bound)] += transfer ? static_cast<double>(kernel.exposed_ns) : total_ns;
    if (bound == Bound::kLatency && total_ns >= calls * kShortKernelNs) sums.far_ns += total_ns;
    if (is_arithmetic(key.category)) {
      sums.arithmetic_ns += total_ns;
      sums.covered_ns += static_cast<double>(kernel.covered_ns);
    }
    if (key.category == Category::kGemm) {
      sums.gemm_ns += total_ns;
      sums.gemm_covered_ns += static_cast<double>(kernel.covered_ns);
    }
    if (key.category == Category::kOther) sums.other_ns += total_ns;
    // Arithmetic inside, of unknown amount: without this the rest would read like the total.
    if (whole_graph != StringId::kEmpty && key.name == whole_graph) sums.arithmetic_ns += total_ns;
    if (key.work == kNoRow) continue;
    const WorkKind kind = works.kind[key.work];
    if (kind == WorkKind::kPointwise || kind == WorkKind::kReduction) continue;  // mostly served by the L2 cache
    const double flops = works.flops[key.work] * calls;
    sums.flops += flops;
    if (kind == WorkKind::kGemm) sums.gemm_flops += flops;
    sums.flops_full += works.flops_full[key.work] * calls;
    sums.bytes += works.bytes[key.work] * calls;
    sums.weight_bytes += works.weight_bytes[key.work] * calls;
    sums.kv_bytes += works.kv_bytes[key.work] * calls;
    const DType dtype = works.dtype[key.work];
    sums.flops_by_dtype[static_cast<size_t>(dtype)] += flops;
    const OptDouble peak = context.device != nullptr ? context.device->peak_of(dtype) : std::nullopt;
    if (peak) {
      sums.compute_ns += flops / *peak * 1e9;
      sums.roof_compute_ns += flops / *context.device->roof_of(dtype) * 1e9;
      if (kind == WorkKind::kGemm) sums.gemm_compute_ns += flops / *peak * 1e9;
    } else if (flops > 0) {
      sums.peaks_known = false;
    }
  }
  return all;
}

// FLOP per SM and cycle of the fastest element type among the arithmetic: what the tensor pipe does at most.
OptDouble tensor_rate(const DeviceReport* device, const StageSums& sums) {
  OptDouble most;
  if (device == nullptr || !device->compute_capability) return most;
  for (size_t d = 0; d < sums.flops_by_dtype.size(); ++d) {
    if (!(sums.flops_by_dtype[d] > 0)) continue;
    if (static_cast<DType>(d) == DType::kUnknown) return std::nullopt;
    const OptDouble rate = tensor_flops_per_cycle(*device->compute_capability, static_cast<DType>(d));
    if (rate) most = std::max(most.value_or(0), *rate);
  }
  return most;
}

// The same over all stages: for those without recorded shapes, as steps in unrecorded time.
OptDouble tensor_rate(const DeviceReport* device, const std::vector<StageSums>& all) {
  StageSums together;
  for (const StageSums& sums : all)
    for (size_t d = 0; d < sums.flops_by_dtype.size(); ++d) together.flops_by_dtype[d] += sums.flops_by_dtype[d];
  return tensor_rate(device, together);
}

void fill_tokens(const Trace& trace, const StageGroup& group, StageTiming& row) {
  const Steps& steps = trace.steps;
  const bool live = is_live_recording(trace);  // contexts are counted there, and the longest may be among the unknown
  int64_t tokens = 0, output = 0, sequences = -1, longest = -1;
  bool contexts_known = true;
  for (const Row s : group.steps) {
    tokens = tokens < 0 || steps.new_tokens[s] < 0 ? -1 : tokens + steps.new_tokens[s];
    output = output < 0 || steps.output_tokens[s] < 0 ? -1 : output + steps.output_tokens[s];
    sequences = std::max(sequences, steps.sequences[s]);
    longest = std::max(longest, steps.context[s]);
    contexts_known &= steps.context[s] >= 0;
  }
  if (group.steps.empty()) return;
  if (tokens >= 0) row.tokens = tokens;
  if (output >= 0) row.output_tokens = output;
  if (sequences >= 0) row.sequences = sequences;
  if (longest >= 0 && (contexts_known || !live)) row.context = longest;
}

// The stage's recorded time as it is without the recorder, ns; absent where that is not known.
std::optional<double> own_ns_of(const Context& context, const StageGroup& group) {
  if (group.unattributed || group.is_warm_up() || group.state != StepState::kUsual ||
      group.missing != MissingKernels::kNone)
    return std::nullopt;
  for (const UndisturbedRecord& row : context.undisturbed.rows()) {
    if (row.device != group.device || row.stage != context.trace.text(group.name)) continue;
    if (row.source == StepTimeSource::kRecorded || row.recorded_ms.value_or(0) <= 0) return std::nullopt;
    return static_cast<double>(group.wall_ns - group.not_recorded_ns) * std::min(1.0, row.step_ms / *row.recorded_ms);
  }
  return std::nullopt;
}

// What the known part of the arithmetic comes to: MFU and MBU are no less, whatever the rest does. Gone once the whole
// is known (fill_stage_rates).
void fill_least_rates(const DeviceReport* device, const StageSums& sums, const StageGroup& group, double own_ns,
                      StageTiming& row) {
  if (device == nullptr || own_ns <= 0 || group.missing == MissingKernels::kAll || group.unattributed) return;
  if (sums.compute_ns > 0) row.mfu_at_least = sums.compute_ns / own_ns;
  const double bytes = sums.weight_bytes + sums.kv_bytes;
  if (bytes > 0 && device->bytes_per_s) row.mbu_at_least = bytes / *device->bytes_per_s * 1e9 / own_ns;
}

// Shares of the wall time by what they wait for; the largest names the bound. `recorder_ns`: by how much the host is
// slower because it is recorded, so that the GPU waits, beyond what is idle because of the profiler anyway.
void decide_bound(const StageGroup& group, const StageSums& sums, double recorder_ns, bool cpu, StageTiming& row) {
  const double gpu_ns = static_cast<double>(group.gpu_ns), busy_ns = static_cast<double>(group.busy_ns);
  // Overlapping streams: durations are scaled to the busy time so that the shares add up to the wall time.
  const double scale = gpu_ns > 0 ? busy_ns / gpu_ns : 0;
  const auto busy = [&](Bound bound) { return sums.bound_ns[static_cast<size_t>(bound)] * scale; };
  const auto idle = [&](IdleCause cause) { return static_cast<double>(group.idle_of(cause)); };
  const double host = std::max(0.0, idle(IdleCause::kLaunchCall) + idle(IdleCause::kOperatorDispatch) +
                                        idle(IdleCause::kHostWork) + idle(IdleCause::kLaunchLatency) +
                                        idle(IdleCause::kAllocator) + idle(IdleCause::kOtherApi) - recorder_ns);
  const double kernels = busy(Bound::kLatency) + idle(IdleCause::kGraphInternal);
  struct Share {
    Bound bound;
    double ns;
  };
  const Share shares[] = {{Bound::kOverhead, host + kernels},
                          {Bound::kCompute, busy(Bound::kCompute)},
                          {Bound::kMemory, busy(Bound::kMemory)},
                          {Bound::kSync, idle(IdleCause::kBlockingSync)},
                          {Bound::kCopy, busy(Bound::kCopy) + idle(IdleCause::kCopy)},
                          {Bound::kComm, busy(Bound::kComm)}};
  const Share* best = &shares[0];
  for (const Share& share : shares)
    if (share.ns > best->ns) best = &share;
  if (group.missing == MissingKernels::kAll) return;
  // What the profiler does meanwhile is no part of the program.
  const double wall_ns =
      static_cast<double>(group.wall_ns - group.idle_of(IdleCause::kNoWork) - group.idle_of(IdleCause::kNoInput) -
                          group.idle_of(IdleCause::kProfiler) - group.not_recorded_ns) -
      recorder_ns;
  if (wall_ns <= 0) return;
  double explained_ns = 0;
  for (const Share& share : shares) explained_ns += share.ns;
  // Of kernels without a ceiling to compare with nobody knows what they wait for, nor of idle time without a cause.
  if (best->ns < kBoundShareMin * wall_ns && explained_ns < kBoundShareMin * wall_ns) return;
  row.bound_frac = best->ns / wall_ns;
  if (best->ns < kBoundShareMin * wall_ns) {
    row.bound = Bound::kMixed;
    const Share* second = nullptr;
    for (const Share& share : shares)
      if (&share != best && (second == nullptr || share.ns > second->ns)) second = &share;
    row.bound_detail = fmt::format("{} {:.0f} %, {} {:.0f} % of its time", name_of(best->bound),
                                   100 * best->ns / wall_ns, name_of(second->bound), 100 * second->ns / wall_ns);
    return;
  }
  row.bound = best->bound;
  if (best != &shares[0]) {
    row.bound_detail = best->bound == Bound::kMemory    ? "memory traffic"
                       : best->bound == Bound::kCompute ? "arithmetic"
                       : best->bound == Bound::kSync    ? "the host waits for the GPU before launching more"
                       : best->bound == Bound::kCopy    ? "copies"
                                                        : "communication between GPUs";
  } else if (cpu) {  // nothing is launched there: what a kernel does not take lies between two
    row.bound_detail = kernels < 2 * host                   ? "the time between kernels"
                       : 2 * sums.far_ns * scale >= kernels ? "kernels far from both arithmetic and memory's limit"
                                                            : "the fixed cost of short kernels";
  } else if (group.gpu_ops == 0) {
    row.bound_detail = "nothing runs on the GPU meanwhile";
  } else if (group.kind == StageKind::kVision && idle(IdleCause::kHostWork) >= kHostAloneMin * wall_ns) {
    row.bound_detail = "host code, next to nothing runs on the GPU meanwhile";
  } else if (host >= 2 * kernels) {
    row.bound_detail = "the GPU waits for the host";
  } else if (kernels >= 2 * host && 2 * sums.far_ns * scale >= kernels) {
    row.bound_detail = "kernels that neither arithmetic nor memory holds up: little parallel work in each";
  } else if (kernels >= 2 * host) {
    row.bound_detail = "short kernels: fixed cost of each, and the pause between them";
  } else {
    row.bound_detail = "host launches and the fixed cost of short kernels";
  }
}

}  // namespace

void analyze_stages(const Context& context, Report& report, std::vector<CannotTell>& cannot_tell) {
  const Groups& groups = context.groups;
  const std::vector<StageSums> all = sum_stages(context);
  std::map<int32_t, DeviceReadings> readings;
  if (!context.trace.gpu_samples.empty() || !context.trace.nvml_samples.empty())
    for (const Window& window : context.trace.windows)
      readings.try_emplace(window.device, context.trace, window.device, context.device);
  const OptDouble any_rate = tensor_rate(context.device, all);
  int64_t unseen = 0;
  for (uint32_t s = 0; s < groups.stages.size(); ++s) {
    const StageGroup& group = groups.stages[s];
    if (group.unattributed && group.wall_ns == 0 && group.gpu_ops == 0) continue;
    const StageSums& sums = all[s];
    StageTiming row;
    row.name = stage_name(context.trace, groups, s);
    row.kind = group.kind;
    row.source = group.source;
    row.device = group.device;
    row.count = static_cast<int64_t>(group.steps.size());
    row.wall_ms.ns = group.wall_ns;
    row.gpu_busy_ms.ns = group.busy_ns;
    row.gpu_idle_ms.ns = group.idle_ns;
    row.not_recorded_ms.ns = group.not_recorded_ns;
    const int64_t recorded_ns = group.wall_ns - group.not_recorded_ns;
    const std::optional<double> alone_ns = own_ns_of(context, group);
    const double own_ns = alone_ns.value_or(static_cast<double>(recorded_ns));
    if (alone_ns) row.own_ms = *alone_ns / 1e6;
    row.gpu_busy_ms.known = row.gpu_idle_ms.known = recorded_ns > 0 || group.wall_ns == 0;
    if (recorded_ns > 0 && group.missing != MissingKernels::kAll)
      row.gpu_busy_frac = std::min(1.0, static_cast<double>(group.busy_ns) / own_ns);
    unseen += group.missing == MissingKernels::kAll ? row.count : 0;
    row.kernels.n = group.gpu_ops;
    row.launches.n = group.launches;
    row.kernels.known = row.launches.known =
        group.gpu_ops > 0 || (group.missing != MissingKernels::kAll && row.gpu_busy_ms.known);
    fill_tokens(context.trace, group, row);
    if (sums.gemm_flops > 0) row.gemm_flops = sums.gemm_flops;
    if (sums.gemm_compute_ns > 0 && recorded_ns > 0) row.gemm_mfu = sums.gemm_compute_ns / own_ns;
    fill_least_rates(context.device, sums, group, own_ns, row);
    if (sums.gemm_ns > 0) row.gemm_coverage_frac = sums.gemm_covered_ns / sums.gemm_ns;
    if (sums.arithmetic_ns > 0) row.flop_coverage_frac = sums.covered_ns / sums.arithmetic_ns;
    const bool nothing_hidden = group.missing == MissingKernels::kNone && sums.arithmetic_ns == 0 && group.gpu_ns > 0 &&
                                sums.other_ns <= (1 - kFlopCoverageMin) * static_cast<double>(group.gpu_ns);
    if (group.missing != MissingKernels::kAll &&
        (nothing_hidden || row.flop_coverage_frac.value_or(0) >= kFlopCoverageMin)) {
      row.flops = sums.flops;
      row.flops_full_attention = sums.flops_full;
      row.flops_provenance = Provenance::kCounted;
      row.dram_bytes_model = sums.bytes;
      row.weight_bytes = sums.weight_bytes;
      row.kv_bytes = sums.kv_bytes;
      const auto most = std::max_element(sums.flops_by_dtype.begin(), sums.flops_by_dtype.end());
      if (*most > 0) row.dtype = dtype_name(static_cast<DType>(most - sums.flops_by_dtype.begin()));
    }
    if (const auto mine = readings.find(group.device); mine != readings.end() && !group.unattributed)
      fill_stage_readings(context, mine->second, group, row);
    const bool no_shapes = *std::max_element(sums.flops_by_dtype.begin(), sums.flops_by_dtype.end()) <= 0;
    fill_measured_flops(no_shapes ? any_rate : tensor_rate(context.device, sums), row);
    fill_stage_rates(context.device,
                     sums.peaks_known ? ComputeTimes{sums.compute_ns, sums.roof_compute_ns} : ComputeTimes{}, row);
    // Outside the steps the GPU mostly has nothing to do, and what little it does is not what that time goes to.
    const bool between = group.unattributed && !context.trace.steps.empty() && 2 * group.busy_ns < recorded_ns;
    if (!between) decide_bound(group, sums, recorder_cost_ns(group, row), on_cpu(context), row);
    if (!row.bound && !group.unattributed && sums.hidden_ns > kHiddenMin * static_cast<double>(recorded_ns))
      cannot_tell.push_back(
          {fmt::format("What limits {}?", row.name),
           "copies or collectives run beside it on other streams: they delay nothing that is seen, and "
           "hide where the GPU would else wait for the host",
           "record it without them (prefetching off, one GPU)"});
    report.stages.push_back(std::move(row));
    report.stage_marks.push_back({group.state, group.phase});
  }
  if (unseen > 0)
    cannot_tell.push_back({"What did the GPU do in the steps whose kernels are not recorded?",
                           fmt::format("{} steps lie in time that was recorded without kernels; their times are those "
                                       "of the program's ranges on the host, which are the GPU's only where the "
                                       "program waits for it in every step",
                                       unseen),
                           "record in the default mode, or over the whole run (--delay 0, no --duration)"});
  if (context.device == nullptr)
    cannot_tell.push_back({"How far are the stages from the hardware's limit?",
                           "the GPU of the recording is not known, so there are no peaks to compare with",
                           "name it with --gpu; `llmprof list gpus` shows the names"});
}

}  // namespace llmprof
