#include "model/on_gpu.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/text_table.h"

namespace llmprof {
namespace {

// What must cross the memory bus: the weights; of the KV cache what lay there before, read, and what is new, written.
// That is what attention reads, for it reads new keys and values too. The last-level cache keeps at most its size of
// what the pass before left; activations may never leave it.
double least_dram_bytes(const StageCost& stage, double cache_bytes) {
  return std::max(0.0, stage.bytes.weights + stage.bytes.kv_read - cache_bytes);
}

// Data sheets of caches call 2^20 bytes a MB. Infinity Cache lies before the memory of AMD's parts.
double last_level_cache_bytes(const Gpu& gpu) {
  const double mb = (gpu.l2_mb ? gpu.l2_mb->value : 0) + (gpu.extra_cache_mb ? gpu.extra_cache_mb->value : 0);
  return mb * 1024 * 1024;
}

void note(GpuFit& fit, const std::string& what, const Sourced& value) {
  const std::string text = what + ": " + value.provenance;
  if (std::find(fit.provenance.begin(), fit.provenance.end(), text) == fit.provenance.end())
    fit.provenance.push_back(text);
}

// The option that has the arithmetic run in a format which the GPU has units for, to stand behind the reason why it has
// none for this one; empty if there is none.
std::string way_out(const Gpu& gpu, const RequestShape& w, const std::string& format) {
  if (format == "bf16" && peak_tflops(gpu, PeakType::kFp16)) return " (--dtype fp16)";
  const std::optional<PeakType> wide = parse_peak_type(w.wide().name);
  if (w.inputs && format == w.compute_format() && wide && peak_tflops(gpu, *wide))
    return fmt::format(" (--activations {}: weights only)", w.wide().name);
  return {};
}

StageBound bound_of(const Gpu& gpu, const RequestShape& w, const StageCost& stage, GpuFit& fit,
                    std::map<std::string, double>& peaks) {
  StageBound bound;
  bound.stage = stage.stage;
  bound.flops = stage.flops.total();
  const double gpus = static_cast<double>(fit.gpus);
  double compute_ms = 0;
  for (const auto& [format, flops] : flops_by_format(stage, w)) {
    const std::optional<PeakType> type = parse_peak_type(format);
    const Known peak = type ? peak_tflops(gpu, *type) : tl::unexpected<std::string>("no peak is known for " + format);
    if (!peak) {
      bound.unknown.push_back(peak.error() + way_out(gpu, w, format));
      continue;
    }
    compute_ms += flops / (gpus * peak->value) / 1e9;
    peaks[std::string(name_of(*type))] = peak->value;
    note(fit, fmt::format("{} peak {} TFLOP/s", name_of(*type), peak->value), *peak);
  }
  // Arithmetic of one format alone would be a bound too, but one that says little: what is missing is named instead.
  if (bound.unknown.empty()) bound.compute_ms = compute_ms;
  const Known bandwidth = memory_bandwidth_gbs(gpu);
  bound.dram_bytes = least_dram_bytes(stage, gpus * fit.cache_bytes);
  if (bandwidth) {
    bound.memory_ms = bound.dram_bytes / (gpus * bandwidth->value) / 1e6;
    note(fit, fmt::format("bandwidth {} GB/s", bandwidth->value), *bandwidth);
  } else {
    bound.unknown.push_back(bandwidth.error());
  }
  return bound;
}

}  // namespace

std::optional<double> StageBound::least_ms() const {
  if (!compute_ms || !memory_ms) return compute_ms ? compute_ms : memory_ms;
  return std::max(*compute_ms, *memory_ms);
}

StageLimit StageBound::limit() const {
  if (!compute_ms && !memory_ms) return StageLimit::kUnknown;
  return compute_ms && *compute_ms >= memory_ms.value_or(0) ? StageLimit::kArithmetic : StageLimit::kMemory;
}

GpuFit hold_against(const Gpu& gpu, const RequestShape& shape, const MemoryNeed& memory,
                    const std::vector<StageCost>& stages) {
  GpuFit fit;
  fit.gpu = gpu.sku;
  const MaybeSourced& visible = gpu.mem_bytes_visible;
  if (visible || gpu.mem_gb) {
    fit.memory_bytes = visible ? visible->value : gpu.mem_gb->value * 1e9;
    fit.memory_as_driver_counts = static_cast<bool>(visible);
    fit.memory_provenance = visible ? visible->provenance : gpu.mem_gb->provenance;
    fit.gpus_at_least = static_cast<int64_t>(std::ceil(memory.total_bytes() / *fit.memory_bytes));
    // No GPU runs what it does not hold: a bound of one alone would be that of a machine that does not exist.
    fit.gpus = std::max<int64_t>(1, fit.gpus_at_least);
  }
  fit.cache_bytes = last_level_cache_bytes(gpu);
  std::map<std::string, double> peaks;
  for (const StageCost& stage : stages) fit.stages.push_back(bound_of(gpu, shape, stage, fit, peaks));
  std::vector<std::string> rates;
  for (const auto& [format, tflops] : peaks)
    rates.push_back(fmt::format("{} TFLOP/s {}", format_fixed(tflops, 1), format));
  if (const Known bandwidth = memory_bandwidth_gbs(gpu))
    rates.push_back(fmt::format("{} GB/s", format_count(bandwidth->value)));
  fit.basis = fmt::format("a lower bound, not a prediction: {}", fmt::join(rates, ", "));
  if (fit.gpus > 1)
    fit.basis += fmt::format(" each, split evenly over {} GPUs, nothing counted for what they send each other",
                             format_count(static_cast<double>(fit.gpus)));
  fit.traffic = "memory is weights and KV cache";
  if (fit.cache_bytes > 0)
    fit.traffic += fmt::format(", less {} that the last-level cache{} may keep",
                               format_bytes(static_cast<double>(fit.gpus) * fit.cache_bytes), fit.gpus > 1 ? "s" : "");
  fit.traffic += ", without activations";
  return fit;
}

ModelOnGpu on_gpu_result(const GpuFit& fit) {
  ModelOnGpu out;
  out.name = fit.gpu;
  out.may_also_mean = fit.others;
  out.memory.bytes = fit.memory_bytes;
  out.memory.provenance = fit.memory_provenance;
  out.memory.as_driver_counts = fit.memory_as_driver_counts;
  if (fit.gpus_at_least > 0) {
    out.memory.fits = fit.gpus_at_least == 1;
    out.memory.gpus_at_least = fit.gpus_at_least;
  }
  out.gpus = fit.gpus;
  if (fit.cache_bytes > 0) out.cache_bytes = static_cast<int64_t>(fit.cache_bytes);
  for (const StageBound& bound : fit.stages)
    out.stages.push_back({bound.stage, bound.least_ms(), bound.limit(), bound.compute_ms, bound.memory_ms, bound.flops,
                          bound.dram_bytes, bound.unknown});
  out.provenance = fit.provenance;
  out.asked = fit.asked;
  out.basis = fit.basis;
  out.traffic = fit.traffic;
  return out;
}

}  // namespace llmprof
