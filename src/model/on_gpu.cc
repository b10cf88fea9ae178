#include "model/on_gpu.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/text_table.h"

namespace llmprof {
namespace {

// What must cross the memory bus. The cache keeps at most its size of what the pass before left; activations, and what
// a prefill itself put into the KV cache, may never leave it.
double least_dram_bytes(const StageCost& stage, double cache_bytes) {
  const double kv = stage.stage == ModelStage::kDecode ? stage.bytes.kv_read : 0;
  return std::max(0.0, stage.bytes.weights + kv + stage.bytes.kv_write - cache_bytes);
}

void note(GpuFit& fit, const std::string& what, const Sourced& value) {
  const std::string text = what + ": " + value.provenance;
  if (std::find(fit.provenance.begin(), fit.provenance.end(), text) == fit.provenance.end())
    fit.provenance.push_back(text);
}

StageBound bound_of(const Gpu& gpu, const Workload& w, const StageCost& stage, GpuFit& fit,
                    std::map<std::string, double>& peaks) {
  StageBound bound;
  bound.stage = stage.stage;
  double compute_ms = 0;
  for (const auto& [format, flops] : flops_by_format(stage, w)) {
    const std::optional<PeakType> type = parse_peak_type(format);
    const Known peak = type ? peak_tflops(gpu, *type) : tl::unexpected<std::string>("no peak is known for " + format);
    if (!peak) {
      bound.unknown.push_back(peak.error());
      continue;
    }
    compute_ms += flops / peak->value / 1e9;
    peaks[std::string(name_of(*type))] = peak->value;
    note(fit, fmt::format("{} peak {} TFLOP/s", name_of(*type), peak->value), *peak);
  }
  // Arithmetic of one format alone would be a bound too, but one that says little: what is missing is named instead.
  if (bound.unknown.empty()) bound.compute_ms = compute_ms;
  const Known bandwidth = memory_bandwidth_gbs(gpu);
  bound.dram_bytes = least_dram_bytes(stage, (gpu.l2_mb ? gpu.l2_mb->value : 0) * 1e6);
  if (bandwidth) {
    bound.memory_ms = bound.dram_bytes / bandwidth->value / 1e6;
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

std::string StageBound::limit() const {
  return compute_ms && compute_ms.value_or(0) >= memory_ms.value_or(0) ? "arithmetic" : "memory";
}

GpuFit hold_against(const Gpu& gpu, const Workload& workload, const MemoryNeed& memory,
                    const std::vector<StageCost>& stages) {
  GpuFit fit;
  fit.gpu = gpu.sku;
  const MaybeSourced& visible = gpu.mem_bytes_visible;
  if (visible || gpu.mem_gb) {
    fit.memory_bytes = visible ? visible->value : gpu.mem_gb->value * 1e9;
    fit.memory_provenance = visible ? visible->provenance : gpu.mem_gb->provenance;
    fit.gpus_at_least = static_cast<int64_t>(std::ceil(memory.total_bytes() / *fit.memory_bytes));
  }
  std::map<std::string, double> peaks;
  for (const StageCost& stage : stages) fit.stages.push_back(bound_of(gpu, workload, stage, fit, peaks));
  fit.basis = "by";
  for (const auto& [format, tflops] : peaks)
    fit.basis += fmt::format(" {} TFLOP/s {},", format_fixed(tflops, 1), format);
  if (const Known bandwidth = memory_bandwidth_gbs(gpu))
    fit.basis += fmt::format(" {} GB/s,", format_count(bandwidth->value));
  fit.basis += " all on one GPU: a lower bound, not a prediction";
  return fit;
}

void write_json(JsonWriter& json, const GpuFit& fit) {
  json.begin_object().field("name", fit.gpu);
  json.key("memory").begin_object().field("bytes", fit.memory_bytes).field("provenance", fit.memory_provenance);
  json.key("fits");
  if (fit.gpus_at_least > 0)
    json.value(fit.gpus_at_least == 1);
  else
    json.null();
  json.key("gpus_at_least");
  if (fit.gpus_at_least > 0)
    json.value(fit.gpus_at_least);
  else
    json.null();
  json.end_object().key("stages").begin_array();
  for (const StageBound& bound : fit.stages) {
    json.begin_object().field("kind", name_of(bound.stage)).field("least_ms", bound.least_ms());
    json.field("limit", bound.least_ms() ? bound.limit() : "unknown");
    json.field("compute_ms", bound.compute_ms).field("memory_ms", bound.memory_ms);
    json.field("dram_bytes", bound.dram_bytes).key("unknown").begin_array();
    for (const std::string& reason : bound.unknown) json.value(reason);
    json.end_array().end_object();
  }
  json.end_array().key("provenance").begin_array();
  for (const std::string& text : fit.provenance) json.value(text);
  json.end_array().end_object();
}

}  // namespace llmprof
