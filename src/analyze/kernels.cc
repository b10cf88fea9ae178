// Kernel top-k and the roofline table, both from the kernel groups.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "analyze/analysis.h"
#include "analyze/counters.h"
#include "analyze/occupancy.h"
#include "analyze/roof.h"
#include "base/statistics.h"

namespace llmprof {
namespace {

bool before(const Context& context, uint32_t a, uint32_t b) {
  const Groups& groups = context.groups;
  const KernelSums &x = groups.kernels[a], &y = groups.kernels[b];
  switch (context.options.sort) {
    case SortKey::kTotal:
      break;
    case SortKey::kMean:
      if (x.total_ns * y.calls != y.total_ns * x.calls) return x.total_ns * y.calls > y.total_ns * x.calls;
      break;
    case SortKey::kCalls:
      if (x.calls != y.calls) return x.calls > y.calls;
      break;
    case SortKey::kName: {
      const StringId m = groups.kernel_keys.key(a).name, n = groups.kernel_keys.key(b).name;
      if (m != n) return context.trace.text(m) < context.trace.text(n);
      break;
    }
  }
  return x.total_ns != y.total_ns ? x.total_ns > y.total_ns : a < b;
}

// Medians of the chosen groups: one pass collects their durations.
std::vector<double> medians(const Context& context, const std::vector<uint32_t>& chosen) {
  const Groups& groups = context.groups;
  constexpr uint32_t kNone = 0xFFFFFFFFU;
  std::vector<uint32_t> slot(groups.kernels.size(), kNone);
  std::vector<std::vector<double>> durations(chosen.size());
  for (uint32_t i = 0; i < chosen.size(); ++i) {
    slot[chosen[i]] = i;
    durations[i].reserve(static_cast<size_t>(groups.kernels[chosen[i]].calls));
  }
  for (Row g = 0; g < context.trace.gpu_ops.size(); ++g)
    if (const uint32_t i = slot[groups.kernel_of[g]]; i != kNone)
      durations[i].push_back(static_cast<double>(context.trace.gpu_ops.dur_ns[g]));
  std::vector<double> out(chosen.size());
  for (size_t i = 0; i < chosen.size(); ++i) out[i] = median_of(std::move(durations[i]));
  return out;
}

KernelRecord kernel_record(const Context& context, uint32_t group, double median_ns) {
  const Trace& trace = context.trace;
  const KernelKey& key = context.groups.kernel_keys.key(group);
  const KernelSums& sums = context.groups.kernels[group];
  const double total_ns = static_cast<double>(sums.total_ns), calls = static_cast<double>(sums.calls);
  KernelRecord row;
  row.name = trace.text(key.name);
  row.category = category_name(key.category);
  row.stage = stage_name(trace, context.groups, key.stage);
  row.device = context.groups.stages[key.stage].device;
  row.calls = sums.calls;
  row.total_ms.ns = sums.total_ns;
  row.mean_ms = total_ns / calls / 1e6;
  row.min_ms.ns = sums.min_ns;
  row.p50_ms = median_ns / 1e6;
  row.max_ms.ns = sums.max_ns;
  row.share = context.groups.gpu_ns > 0 ? total_ns / static_cast<double>(context.groups.gpu_ns) : 0;
  row.provenance = Provenance::kMeasured;
  if (key.config != kNoRow) {
    const LaunchConfigs& c = trace.launch_configs;
    const Row r = key.config;
    row.grid = fmt::format("{}x{}x{}", c.grid_x[r], c.grid_y[r], c.grid_z[r]);
    row.block = fmt::format("{}x{}x{}", c.block_x[r], c.block_y[r], c.block_z[r]);
    const Occupancy occupancy = occupancy_of(trace, r, row.device);
    row.occupancy_frac = occupancy.frac;
    row.theoretical_occupancy_frac = occupancy.theoretical;
    row.occupancy_provenance = occupancy.provenance;
    if (c.registers_per_thread[r] >= 0) row.registers_per_thread = c.registers_per_thread[r];
    if (c.shared_bytes[r] >= 0) row.shared_bytes = c.shared_bytes[r];
  }
  const KernelRoof roof = kernel_roof(context, group);
  const Bound bound = kernel_bound(context, group, roof);
  if (bound != Bound::kUnknown) row.bound = bound;
  if (roof.known) {
    row.flops = roof.flops;
    row.bytes = roof.bytes;
    if (total_ns > 0) {
      row.tflops = roof.flops / total_ns / 1e3;
      row.gbs = roof.bytes / total_ns;
      if (roof.point.roof_ns) row.of_roof_frac = *roof.point.roof_ns / total_ns;
    }
    if (roof.bytes > 0) row.intensity = roof.flops / roof.bytes;
  }
  if (key.work == kNoRow) return row;
  row.provenance = Provenance::kCounted;
  row.shape = std::string(trace.text(trace.works.shape[key.work]));
  if (trace.works.dtype[key.work] != DType::kUnknown) row.dtype = dtype_name(trace.works.dtype[key.work]);
  return row;
}

RooflineRecord roofline_record(const Context& context, uint32_t group) {
  RooflineRecord row;
  const KernelRecord kernel = kernel_record(context, group, 0);
  const KernelRoof roof = kernel_roof(context, group);
  const double calls = static_cast<double>(kernel.calls);
  row.name = kernel.name;
  row.category = kernel.category;
  row.stage = kernel.stage;
  row.shape = kernel.shape.value_or("");
  row.dtype = kernel.dtype.value_or("unknown");
  row.calls = kernel.calls;
  row.total_ms = kernel.total_ms;
  row.flops = *kernel.flops / calls;
  row.bytes = *kernel.bytes / calls;
  row.intensity = kernel.intensity.value_or(0);
  row.tflops = kernel.tflops.value_or(0);
  row.gbs = kernel.gbs.value_or(0);
  row.bound = kernel.bound;
  row.of_roof_frac = kernel.of_roof_frac;
  if (context.device == nullptr) return row;
  if (roof.bytes_per_s) row.peak_gbs = *roof.bytes_per_s / 1e9;
  if (!roof.link && roof.flops_per_s) {
    row.peak_tflops = *roof.flops_per_s / 1e12;
    if (roof.bytes_per_s) row.ridge = *roof.flops_per_s / *roof.bytes_per_s;
    if (roof.point.roof_ns && *roof.point.roof_ns > 0) row.attainable_tflops = roof.flops / *roof.point.roof_ns / 1e3;
  }
  // Some percent above a measured ceiling: nothing is left to gain then.
  if (row.of_roof_frac) row.gain_ms = kernel.total_ms.ms() * std::max(0.0, 1 - *row.of_roof_frac);
  return row;
}

}  // namespace

void analyze_kernels(const Context& context, Report& report, std::vector<CannotTell>&) {
  const Groups& groups = context.groups;
  std::vector<uint32_t> order(groups.kernels.size());
  std::iota(order.begin(), order.end(), 0U);
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return before(context, a, b); });
  std::vector<uint32_t> roofs;
  for (uint32_t k = 0; k < groups.kernels.size(); ++k) {
    const WorkId work = groups.kernel_keys.key(k).work;
    if (groups.kernels[k].copied_bytes && *groups.kernels[k].copied_bytes == 0) continue;
    if (work == kNoRow || !(context.trace.works.bytes[work] > 0) || groups.kernels[k].total_ns <= 0) continue;
    if (kernel_roof(context, k).known) roofs.push_back(k);
  }
  std::sort(roofs.begin(), roofs.end(), [&](uint32_t a, uint32_t b) {
    return groups.kernels[a].total_ns != groups.kernels[b].total_ns
               ? groups.kernels[a].total_ns > groups.kernels[b].total_ns
               : a < b;
  });
  const std::vector<double> p50 = medians(context, order);
  std::map<int32_t, std::vector<KernelSamples>> counters;
  if (!context.trace.gpu_samples.empty())
    for (const Window& window : context.trace.windows) {
      const bool known = context.device != nullptr && context.device->device == window.device;
      counters[window.device] =
          kernel_counters(context.trace, groups, window.device, known ? context.device->bytes_per_s : std::nullopt);
    }
  for (size_t i = 0; i < order.size(); ++i) {
    KernelRecord& row = report.kernels_topk.emplace_back(kernel_record(context, order[i], p50[i]));
    const auto of_device = counters.find(static_cast<int32_t>(row.device));
    if (of_device == counters.end()) continue;
    const KernelSamples& sums = of_device->second[order[i]];
    if (sums.samples < kKernelSamplesMin) continue;
    row.counter_samples = sums.samples;
    row.dram_bytes_per_s_measured = sums.dram_bytes_per_s.mean();
    row.tensor_active_frac = sums.tensor_active.mean();
  }
  for (const uint32_t k : roofs) report.roofline.push_back(roofline_record(context, k));
}

}  // namespace llmprof
