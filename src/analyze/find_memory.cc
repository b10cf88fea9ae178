// Findings about memory traffic, copies between host and device, and communication.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "analyze/copies.h"
#include "analyze/finding.h"
#include "analyze/kernel_times.h"
#include "analyze/processor.h"
#include "analyze/rank_names.h"
#include "base/text_table.h"

namespace llmprof {
namespace {

// A cause must hold this share of the GPU time of a stage to be named as what binds its kernels.
constexpr double kBindingShareMin = 0.40;
constexpr double kKvShareMin = 0.25;
constexpr double kCopyShareMin = 0.20;
constexpr const char* kPinAdvice =
    "Allocate host buffers pinned (pin_memory=True) and copy with non_blocking=True: faster, and the host does not "
    "wait.";
constexpr double kPageableShareMin = 0.02;
constexpr double kCacheCopyShareMin = 0.01;
constexpr double kWideShareMin = 0.10;

// Sums over the kernels of a stage whose arithmetic is known and limited by memory.
struct MemorySums {
  double time_ns = 0, roof_ns = 0, bytes = 0, weight_bytes = 0, kv_bytes = 0;
  double memory_ns = 0, memory_bytes = 0,
         memory_of_bytes = 0;            // at memory's bandwidth: what is held against it, of what
  double cache_ns = 0, cache_bytes = 0;  // at the cache's
  double widest_ns = 0;
  DType weight_dtype = DType::kUnknown;
};

MemorySums memory_kernels(const FindingContext& finding, const StageView& stage, WorkKind kind) {
  MemorySums out;
  const Works& works = finding.trace().works;
  for (const uint32_t k : stage.kernels) {
    const KernelKey& key = finding.key(k);
    if (key.work == kNoRow || works.kind[key.work] != kind) continue;
    const KernelSums& sums = finding.sums(k);
    const double calls = static_cast<double>(sums.calls), total_ns = static_cast<double>(sums.total_ns);
    const KernelRoof roof = kernel_roof(finding.context, k);
    const RoofPoint& point = roof.point;
    if (point.roof_ns && (!point.memory_ns || point.compute_ns.value_or(0) > *point.memory_ns)) continue;
    if (!point.roof_ns && point.bound != Bound::kMemory) continue;
    out.time_ns += total_ns;
    out.roof_ns += point.roof_ns.value_or(total_ns);  // else faster than the roof that is known
    if (point.memory_ns) {
      (roof.cache ? out.cache_ns : out.memory_ns) += *point.memory_ns;
      (roof.cache ? out.cache_bytes : out.memory_bytes) += roof.held_bytes;
      if (!roof.cache) out.memory_of_bytes += roof.bytes;
    }
    out.bytes += works.bytes[key.work] * calls;
    out.weight_bytes += works.weight_bytes[key.work] * calls;
    out.kv_bytes += works.kv_bytes[key.work] * calls;
    if (total_ns > out.widest_ns) {
      out.widest_ns = total_ns;
      out.weight_dtype = works.weight_dtype[key.work];
    }
  }
  return out;
}

// What was reached of which bandwidth: of a measured one its rate stands beside the share, since there are several.
Evidence share_of_bandwidth(const FindingContext& finding, const MemorySums& sums) {
  constexpr double kWhole = 0.99;
  const DeviceReport& device = *finding.context.device;
  const double share = sums.roof_ns / sums.time_ns;
  if (!device.measured_bytes_per_s)
    return {"share of data sheet bandwidth", share, Unit::kFrac, device.bandwidth_provenance()};
  const auto rate = [](double bytes_per_ns) {
    return fmt::format("share of the measured {} GB/s", format_count(bytes_per_ns));
  };
  std::string metric;
  if (sums.memory_ns + sums.cache_ns <= sums.roof_ns / 2)
    return {rate(*device.measured_bytes_per_s / 1e9) + " of memory, which is exceeded: it was measured too low",
            sums.bytes / *device.measured_bytes_per_s * 1e9 / sums.time_ns, Unit::kFrac, Provenance::kMeasured};
  if (sums.cache_ns > sums.memory_ns) {
    metric = rate(sums.cache_bytes / sums.cache_ns) + " of the cache";
  } else {
    metric = rate(sums.memory_bytes / sums.memory_ns) + " of memory";
    if (sums.memory_bytes < kWhole * sums.memory_of_bytes)
      metric += fmt::format(", for the {} of the bytes that the cache cannot keep",
                            format_percent(sums.memory_bytes / sums.memory_of_bytes));
  }
  return {metric, share, Unit::kFrac, Provenance::kMeasured};
}

std::string share_of_stage(const FindingContext& finding) {
  return fmt::format("share of the stage's {} time", processor(finding.context));
}

}  // namespace

void find_memory_bound_weights(const FindingContext& finding) {
  if (finding.context.device == nullptr || !finding.context.device->roof_bytes_per_s()) return;
  for (const StageView& stage : finding.stages) {
    const MemorySums gemm = memory_kernels(finding, stage, WorkKind::kGemm);
    const double weight_ns = gemm.bytes > 0 ? gemm.time_ns * gemm.weight_bytes / gemm.bytes : 0;
    // Half of what the roof asks for is the least that makes "memory" the reason and not the fixed cost of kernels.
    if (weight_ns < kBindingShareMin * stage.busy_ns() || gemm.roof_ns < 0.3 * gemm.time_ns) continue;
    const double width = dtype_bytes(gemm.weight_dtype);
    Finding& out = finding.add("memory-bound-weights", &stage,
                               fmt::format("{}{} of the {} time reads weights", stage.label(),
                                           format_percent(weight_ns / stage.busy_ns()), processor(finding.context)),
                               weight_ns / 2);
    out.evidence = {
        measured("time of weight-reading GEMMs per step", stage.per_step_ms(gemm.time_ns), Unit::kMs),
        measured("of it reading weights, by their part of the bytes", stage.per_step_ms(weight_ns), Unit::kMs),
        measured(share_of_stage(finding), weight_ns / stage.busy_ns(), Unit::kFrac),
        counted("weights read per step", gemm.weight_bytes / stage.count(), Unit::kBytes),
        counted("bandwidth reached by these GEMMs", gemm.bytes / gemm.time_ns, Unit::kGbs),
        share_of_bandwidth(finding, gemm)};
    if (stage.timing->dram_frac)
      out.evidence.push_back(
          measured("memory interface active, by hardware counter", *stage.timing->dram_frac, Unit::kFrac));
    if (stage.timing->dram_bytes_measured)
      out.evidence.push_back(measured("memory traffic per step, by hardware counter",
                                      *stage.timing->dram_bytes_measured / static_cast<double>(stage.timing->count),
                                      Unit::kBytes));
    if (width > 1) {
      out.advice = {
          fmt::format("Store weights narrower than {} (FP8 or INT8 halve the bytes of 16-bit weights, INT4 "
                      "quarters them).",
                      dtype_name(gemm.weight_dtype))};
    } else {
      out.advice = {"Store weights in 4 bits (INT4, MXFP4, NVFP4)."};
    }
    out.advice.push_back("Serve more sequences per step: the same weights are read once for all of them.");
    out.advice.push_back("Speculative decoding checks several tokens per reading of the weights.");
    finding.bound_work(stage, weight_ns / 2, out);
    if (!out.bound) continue;
    out.evidence.push_back(
        {"bound assumes half the weight bytes at the same bandwidth", 0.5, Unit::kFrac, Provenance::kFormula});
  }
}

void find_memory_bound_kv(const FindingContext& finding) {
  if (finding.context.device == nullptr || !finding.context.device->roof_bytes_per_s()) return;
  for (const StageView& stage : finding.stages) {
    if (stage.group->kind != StageKind::kDecode && stage.group->kind != StageKind::kMixed) continue;
    const MemorySums attention = memory_kernels(finding, stage, WorkKind::kAttention);
    if (attention.time_ns < kKvShareMin * stage.busy_ns() || attention.roof_ns < 0.3 * attention.time_ns) continue;
    const double kv_ns = attention.bytes > 0 ? attention.time_ns * attention.kv_bytes / attention.bytes : 0;
    Finding& out = finding.add("memory-bound-kv", &stage,
                               fmt::format("{}{} of the {} time reads the KV cache", stage.label(),
                                           format_percent(kv_ns / stage.busy_ns()), processor(finding.context)),
                               kv_ns / 2);
    out.evidence = {
        measured("attention time per step", stage.per_step_ms(attention.time_ns), Unit::kMs),
        measured("of it reading the KV cache, by its part of the bytes", stage.per_step_ms(kv_ns), Unit::kMs),
        measured(share_of_stage(finding), kv_ns / stage.busy_ns(), Unit::kFrac),
        counted("KV cache read per step", attention.kv_bytes / stage.count(), Unit::kBytes),
        counted("bandwidth reached", attention.bytes / attention.time_ns, Unit::kGbs),
        share_of_bandwidth(finding, attention)};
    out.advice = {"Keep the cache in FP8: half the bytes.",
                  "Models with fewer KV heads (GQA, MQA), latent attention or sliding windows read less per token."};
    finding.bound_work(stage, kv_ns / 2, out);
  }
}

void find_kv_cache_copy(const FindingContext& finding) {
  for (const StageView& stage : finding.stages) {
    const double copy_ns = static_cast<double>(stage.kv_copy_ns);
    if (stage.kv_copies == 0 || copy_ns < kCacheCopyShareMin * stage.busy_ns()) continue;
    Finding& out =
        finding.add("kv-cache-copy", &stage,
                    fmt::format("{}every step copies the whole KV cache to append to it", stage.label()), copy_ns);
    out.evidence = {measured("time of the copies per step", stage.per_step_ms(copy_ns), Unit::kMs),
                    measured(share_of_stage(finding), copy_ns / stage.busy_ns(), Unit::kFrac),
                    measured("copies per step", static_cast<double>(stage.kv_copies) / stage.count(), Unit::kOne)};
    if (stage.timing->context)
      out.evidence.push_back(
          counted("context, and the copies grow with it", static_cast<double>(*stage.timing->context), Unit::kTokens));
    out.advice = {
        "Use a cache allocated once and written in place (StaticCache in Hugging Face transformers, a paged "
        "cache in servers) instead of concatenating."};
    if (!on_cpu(finding.context)) out.advice.back() += " It is also what CUDA graphs need.";
    out.bound = stage.bound(copy_ns);
  }
}

namespace {

// By what pinned memory would bring each stage, where that can be simulated.
bool find_pageable_copies_of_stages(const FindingContext& finding) {
  bool found = false;
  for (const StageView& stage : finding.stages) {
    double copy_ns = 0, copies = 0;
    for (const uint32_t k : stage.kernels) {
      if (finding.sums(k).kind != GpuOpKind::kMemcpy || finding.key(k).host_memory != HostMemory::kPageable) continue;
      copy_ns += static_cast<double>(finding.sums(k).total_ns);
      copies += static_cast<double>(finding.sums(k).calls);
    }
    if (copies == 0 || !finding.worth(stage, "pinned-copies", false)) continue;
    Finding& out = finding.add(
        "pageable-copy", &stage,
        fmt::format("{}copies use pageable host memory, and the host waits for them", stage.label()), copy_ns / 2);
    out.evidence = {measured("pageable copies per step", copies / stage.count(), Unit::kOne),
                    measured("their time per step", stage.per_step_ms(copy_ns), Unit::kMs)};
    add_copy_rates(finding.context.device, sum_copies(finding.context, stage.kernels), out.evidence);
    out.advice = {kPinAdvice};
    finding.add_places(stage, PlaceKind::kCopy, out);
    found = true;
  }
  return found;
}

}  // namespace

void find_pageable_copy(const FindingContext& finding) {
  if (find_pageable_copies_of_stages(finding)) return;
  const Trace& trace = finding.trace();
  const Groups& groups = finding.context.groups;
  double whole_ns = 0, total_ns = 0;
  int64_t copies = 0;
  CopySums by_path;
  std::map<int32_t, int64_t> first_step_ns;  // steps are sorted by start
  for (Row s = 0; s < trace.steps.size(); ++s) first_step_ns.emplace(trace.steps.device[s], trace.steps.start_ns[s]);
  for (Row g = 0; g < trace.gpu_ops.size(); ++g) {
    if (trace.gpu_ops.kind[g] != GpuOpKind::kMemcpy) continue;
    if (trace.gpu_ops.host_memory[g] != HostMemory::kPageable) continue;
    // Loading weights is done once.
    const int32_t device = trace.device_of(g);
    if (finding.before_serving(device, trace.gpu_ops.start_ns[g])) continue;
    const auto first = first_step_ns.find(device);
    if (first != first_step_ns.end() && trace.gpu_ops.start_ns[g] < first->second) continue;
    const uint32_t stage = groups.kernel_keys.key(groups.kernel_of[g]).stage;
    if (groups.stages[stage].is_warm_up()) continue;
    const double copy_ns = static_cast<double>(trace.gpu_ops.dur_ns[g]);
    if (groups.stages[stage].missing != MissingKernels::kAll) whole_ns += finding.whole_ns(stage, copy_ns);
    total_ns += copy_ns;
    if (trace.gpu_ops.bytes[g] > 0)
      by_path.add(trace.gpu_ops.path[g], 1, trace.gpu_ops.bytes[g], trace.gpu_ops.dur_ns[g]);
    ++copies;
  }
  if (whole_ns < kPageableShareMin * finding.window_ns || copies == 0) return;
  Finding& out = finding.add("pageable-copy", nullptr, "copies use pageable host memory", whole_ns / 2);
  out.evidence = {measured("pageable copies recorded", static_cast<double>(copies), Unit::kOne),
                  measured("their time", total_ns / 1e6, Unit::kMs),
                  measured("share of the time, if unrecorded time is like recorded time", whole_ns / finding.window_ns,
                           Unit::kFrac)};
  add_copy_rates(finding.context.device, by_path, out.evidence);
  out.advice = {kPinAdvice};
}

void find_copy_bound(const FindingContext& finding) {
  for (const StageView* view : finding.with_unstaged()) {
    const StageView& stage = *view;
    // Copy engines only: kernels that copy inside the device are another matter.
    double kernels_ns = 0, pageable_ns = 0, all_ns = 0;
    for (const uint32_t k : stage.kernels) {
      if (finding.sums(k).kind != GpuOpKind::kMemcpy) continue;
      all_ns += static_cast<double>(finding.sums(k).total_ns);
      kernels_ns += static_cast<double>(finding.sums(k).exposed_ns);
      if (finding.key(k).host_memory == HostMemory::kPageable)
        pageable_ns += static_cast<double>(finding.sums(k).exposed_ns);
    }
    kernels_ns = std::min(kernels_ns, stage.busy_ns());  // on several streams at once
    const double copy_ns = kernels_ns + stage.idle_ns(IdleCause::kCopy);
    if (!finding.worth(stage, "no-copies", copy_ns >= kCopyShareMin * stage.own_ns())) continue;
    // Of the whole recording, pageable-copy tells the same with its reason.
    if (stage.whole() && pageable_ns * 2 > kernels_ns) continue;
    Finding& out =
        finding.add("copy-bound", &stage,
                    fmt::format("{}copies that no kernel hides take {} of the time{}", stage.label(),
                                format_percent(copy_ns / stage.wall_ns()), stage.whole() ? "" : " of a step"),
                    copy_ns);
    out.evidence = {
        measured(stage.each("copies on the GPU that no kernel hides"), stage.per_step_ms(kernels_ns), Unit::kMs),
        measured(stage.each("all copies on the GPU"), stage.per_step_ms(all_ns), Unit::kMs),
        measured("all copies, hidden ones too, over the time", all_ns / stage.wall_ns(), Unit::kFrac),
        measured(stage.each("idle behind blocking copies"), stage.per_step_ms(stage.idle_ns(IdleCause::kCopy)),
                 Unit::kMs)};
    const CopySums by_path = sum_copies(finding.context, stage.kernels);
    add_copy_rates(finding.context.device, by_path, out.evidence);
    if (const OptDouble least_ns = least_copy_ns(finding.context.device, by_path))
      out.evidence.push_back({stage.each("bound assumes that the copies go; at the full rate of their links they take"),
                              stage.per_step_ms(*least_ns), Unit::kMs, Provenance::kFormula});
    out.advice = {
        "Keep data on the device, copy once and early on a stream of its own, and overlap copies with kernels "
        "(weights or cache offloaded to the host are read over PCIe every step)."};
    finding.add_places(stage, PlaceKind::kCopy, out);
    out.bound = stage.bound(copy_ns);
  }
}

void find_batch_too_small(const FindingContext& finding) {
  if (finding.context.device == nullptr) return;
  const Works& works = finding.trace().works;
  for (const StageView& stage : finding.stages) {
    if (stage.group->kind != StageKind::kDecode || !stage.timing->sequences || !stage.timing->dtype) continue;
    const MemorySums gemm = memory_kernels(finding, stage, WorkKind::kGemm);
    if (gemm.weight_dtype == DType::kUnknown || gemm.time_ns < kBindingShareMin * stage.busy_ns()) continue;
    DType dtype = DType::kUnknown;
    for (const uint32_t k : stage.kernels)
      if (finding.key(k).work != kNoRow && works.kind[finding.key(k).work] == WorkKind::kGemm)
        dtype = works.dtype[finding.key(k).work];
    const DeviceReport& device = *finding.context.device;
    const OptDouble peak = device.roof_of(dtype), bandwidth = device.roof_bytes_per_s();
    if (!peak || !bandwidth) continue;
    // Tokens per step at which reading the weights and computing with them take equally long: peak * width / (2 * BW).
    const double crossover = *peak * dtype_bytes(gemm.weight_dtype) / (2 * *bandwidth);
    const double sequences = static_cast<double>(*stage.timing->sequences);
    if (sequences * 8 > crossover) continue;  // from an eighth on, attention and cache size decide the batch
    Finding& out = finding.add("batch-too-small", &stage,
                               fmt::format("{}with {} per step, reading the weights serves few tokens", stage.label(),
                                           sequences == 1 ? "1 sequence" : format_count(sequences) + " sequences"),
                               0);
    out.evidence = {
        counted("sequences per step", sequences, Unit::kOne),
        {"tokens per step at which GEMMs become compute-bound", crossover, Unit::kTokens, device.roof_provenance()},
        counted("arithmetic intensity of the stage", stage.timing->intensity.value_or(0), Unit::kFlopPerByte)};
    if (!stage.timing->intensity) out.evidence.pop_back();
    out.advice = {
        "If throughput counts more than the latency of one request, batch more sequences per step (continuous "
        "batching): GEMM time hardly grows up to about that many tokens; KV cache memory is the limit."};
  }
}

namespace {

// Least time of a GEMM of 4-byte types in bf16: half the bytes at the same bandwidth where memory limits it, else its
// arithmetic at the roof of bf16, which may be many times that of fp32. Half the time where that is not known.
double narrow_gemm_ns(const FindingContext& finding, uint32_t kernel, double total_ns) {
  const KernelRoof roof = kernel_roof(finding.context, kernel);
  const DeviceReport* device = finding.context.device;
  const OptDouble narrow = device != nullptr ? device->roof_of(DType::kBf16) : std::nullopt;
  if (kernel_bound(finding.context, kernel, roof) != Bound::kCompute || !narrow) return total_ns / 2;
  const double memory_ns = roof.point.memory_ns.value_or(0) / 2;
  return std::min(total_ns / 2, std::max(roof.flops / *narrow * 1e9, memory_ns));
}

}  // namespace

namespace {

// Where the weights are of 16 bits and queries and keys are not.
void find_wide_attention(const FindingContext& finding, const StageView& stage) {
  const Trace& trace = finding.trace();
  double wide_ns = 0;
  std::string name;
  for (const uint32_t k : stage.kernels) {
    const std::string_view text = trace.text(finding.key(k).name);
    if (!is_wide_attention(text)) continue;
    wide_ns += static_cast<double>(finding.sums(k).total_ns);
    name = text;
  }
  if (wide_ns == 0 || wide_ns < kWideShareMin * stage.busy_ns()) return;
  const double part = half_precision_part(
      trace.steps, stage.group->steps.empty() ? StepId(kNoRow) : StepId(stage.group->steps.front()));
  Finding& out =
      finding.add("dtype-wide", &stage, stage.label() + "attention runs on 4-byte numbers", wide_ns * (1 - part));
  out.evidence = {measured(stage.each("time of such attention"), stage.per_step_ms(wide_ns), Unit::kMs),
                  measured("share of the stage's GPU time", wide_ns / stage.busy_ns(), Unit::kFrac),
                  {stage.each("its time in bf16"), stage.per_step_ms(wide_ns * part), Unit::kMs, Provenance::kFormula}};
  out.where.push_back({"kernel", name, {}});
  out.advice = {
      "Hand queries, keys and values to attention in bf16 or fp16: compute what needs more digits (angles, norms) in "
      "single precision and convert its result."};
  finding.bound_work(stage, wide_ns * (1 - part), out);
}

}  // namespace

void find_dtype_wide(const FindingContext& finding) {
  const Works& works = finding.trace().works;
  for (const StageView* view : finding.with_unstaged()) {
    const StageView& stage = *view;
    double wide_ns = 0, weight_bytes = 0, narrow_ns = 0;
    DType dtype = DType::kUnknown;
    for (const uint32_t k : stage.kernels) {
      const KernelKey& key = finding.key(k);
      if (key.work == kNoRow || works.kind[key.work] != WorkKind::kGemm) continue;
      if (dtype_bytes(works.weight_dtype[key.work]) < 4 || works.weight_bytes[key.work] <= 0) continue;
      const double total_ns = static_cast<double>(finding.sums(k).total_ns);
      wide_ns += total_ns;
      narrow_ns += narrow_gemm_ns(finding, k, total_ns);
      weight_bytes += works.weight_bytes[key.work] * static_cast<double>(finding.sums(k).calls);
      dtype = works.weight_dtype[key.work];
    }
    if (wide_ns < kWideShareMin * stage.busy_ns() || wide_ns == 0) {
      find_wide_attention(finding, stage);
      continue;
    }
    Finding& out = finding.add("dtype-wide", &stage, fmt::format("{}weights are {}", stage.label(), dtype_name(dtype)),
                               wide_ns - narrow_ns);
    out.evidence = {measured(stage.each("time of GEMMs with such weights"), stage.per_step_ms(wide_ns), Unit::kMs),
                    measured("share of the stage's GPU time", wide_ns / stage.busy_ns(), Unit::kFrac),
                    counted(stage.each("such weights read"), weight_bytes / stage.count(), Unit::kBytes)};
    out.advice = {
        "Load the model in bf16 or fp16 (torch_dtype=torch.bfloat16): half the bytes, and the tensor cores' "
        "full rate."};
    out.evidence.push_back({stage.each("least time of these GEMMs in bf16"), stage.per_step_ms(narrow_ns), Unit::kMs,
                            Provenance::kFormula});
    finding.bound_work(stage, wide_ns - narrow_ns, out);
  }
}

namespace {

// A collective without a partner, and one that starts from one rank alone, holds waits that nobody knows.
std::string without_waits(const RankWaits& waits, double collectives) {
  const int64_t all = std::llround(collectives);
  if (waits.collectives >= all) return " apart from waiting for other ranks";
  return fmt::format(" apart from waiting for other ranks in the {} of its {} collectives where that is known",
                     waits.collectives, all);
}

}  // namespace

void find_comm_bound(const FindingContext& finding) {
  const bool joined = !finding.trace().ranks.empty();
  std::map<uint32_t, RankWaits> waits = waits_for_ranks(finding);  // rank-skew tells of these
  for (const StageView* view : finding.with_unstaged()) {
    const StageView& stage = *view;
    double comm_ns = 0, all_ns = 0, kernels = 0;
    for (const uint32_t k : stage.kernels) {
      if (finding.key(k).category != Category::kCommunication) continue;
      all_ns += static_cast<double>(finding.sums(k).total_ns);
      comm_ns += static_cast<double>(finding.sums(k).exposed_ns);
      kernels += static_cast<double>(finding.sums(k).calls);
    }
    const RankWaits& waited = waits[stage.stage];
    comm_ns = std::max(0.0, comm_ns - waited.ns);
    if (comm_ns == 0 || !finding.worth(stage, "no-communication", comm_ns >= kCopyShareMin * stage.wall_ns())) continue;
    Finding& out = finding.add(
        "comm-bound", &stage,
        fmt::format("{}communication takes {} of the time{}", stage.label(), format_percent(comm_ns / stage.wall_ns()),
                    joined ? without_waits(waited, kernels) : ""),
        comm_ns);
    out.evidence = {measured(stage.each("communication that no kernel hides"), stage.per_step_ms(comm_ns), Unit::kMs),
                    measured(stage.each("all communication"), stage.per_step_ms(all_ns), Unit::kMs),
                    measured(stage.each("collectives"), kernels / stage.count(), Unit::kOne),
                    measured("mean duration", all_ns / kernels / 1e3, Unit::kUs)};
    out.advice = {
        "Use fewer GPUs per replica if the model fits, custom or fused all-reduce for small messages, and "
        "overlap communication with computation."};
    if (!joined) out.advice.front() += " Time in a collective includes waiting for other ranks.";
    out.bound = stage.bound(comm_ns);
  }
}

}  // namespace llmprof
