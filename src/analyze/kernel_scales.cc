#include "analyze/kernel_scales.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "analyze/ceilings.h"
#include "analyze/kernel_times.h"
#include "analyze/processor.h"
#include "analyze/roof.h"
#include "hardware/hardware.h"

namespace llmprof {
namespace {

using replay::KernelScales;
using replay::Scale;

// Of one kernel group. `least_ns`: activities that are shorter stay as they are.
struct GroupScale {
  double factor = 1, least_ns = 0;
};

// What one call of a known shape takes by its arithmetic and by its bytes, at the rates that kernels reach.
struct Sides {
  double compute_ns = 0, memory_ns = 0;
  double longer() const { return std::max(compute_ns, memory_ns); }
};

class ScaledGroups {
 public:
  explicit ScaledGroups(const Context& context) : context_(context), works_(context.trace.works) {}

 protected:
  const KernelKey& key(uint32_t k) const { return context_.groups.kernel_keys.key(k); }
  const KernelSums& sums(uint32_t k) const { return context_.groups.kernels[k]; }
  bool is_short(uint32_t k) const {
    return static_cast<double>(sums(k).total_ns) < kShortKernelNs * static_cast<double>(sums(k).calls);
  }
  std::optional<Sides> sides(uint32_t k) const {
    const WorkId work = key(k).work;
    if (work == kNoRow || context_.device == nullptr) return {};
    const OptDouble flops_per_ns = reached_flops_per_ns(*context_.device, works_.dtype[work]);
    const OptDouble bytes_per_ns = reached_bytes_per_ns(*context_.device);
    if (!flops_per_ns || !bytes_per_ns) return {};
    const Sides out{works_.flops[work] / *flops_per_ns, works_.bytes[work] / *bytes_per_ns};
    return out.longer() > 0 ? std::optional(out) : std::nullopt;
  }

  const Context& context_;
  const Works& works_;
};

// Twice the sequences: weights are read once as before, all else is twice as much. Of products of unknown shape nobody
// knows what of their traffic is weights: they are taken to have none. That more sequences choose more experts is not
// counted: a product's weights are those that it reads now.
class DoubledBatch : public ScaledGroups {
 public:
  using ScaledGroups::ScaledGroups;
  GroupScale of(uint32_t k) const {
    const WorkId work = key(k).work;
    const std::optional<Sides> now = sides(k);
    const bool weights =
        work != kNoRow && (works_.kind[work] == WorkKind::kGemm || works_.kind[work] == WorkKind::kConvolution);
    if (!weights || !now) return {2, kShortKernelNs};
    if (is_short(k) && kernel_bound(context_, k) == Bound::kLatency) return {};
    const double grown = works_.bytes[work] > 0 ? 2 - works_.weight_bytes[work] / works_.bytes[work] : 2;
    const Sides then{2 * now->compute_ns, grown * now->memory_ns};
    return {std::max(1.0, then.longer() / now->longer()), 0};
  }
};

// `part`: of their time that kernels keep whose instructions are what they wait for.
class FullClock : public ScaledGroups {
 public:
  FullClock(const Context& context, double part) : ScaledGroups(context), part_(part) {}
  GroupScale of(uint32_t k) const {
    if (sums(k).kind != GpuOpKind::kKernel) return {};
    const Bound bound = kernel_bound(context_, k);
    return {bound == Bound::kCompute || bound == Bound::kLatency ? part_ : 1, 0};
  }

 private:
  double part_;
};

// By the data sheets of both: what one does not reach of its peaks the other is taken not to reach either.
class AnotherGpu : public ScaledGroups {
 public:
  AnotherGpu(const Context& context, const Gpu& gpu, double bytes) : ScaledGroups(context), gpu_(gpu), bytes_(bytes) {}

  GroupScale of(uint32_t k) const {
    if (sums(k).kind != GpuOpKind::kKernel) {
      const bool link = sums(k).kind == GpuOpKind::kMemcpy && key(k).path != CopyPath::kOnDevice;
      return {link ? 1 : bytes_, kShortKernelNs};
    }
    const WorkId work = key(k).work;
    const OptDouble arithmetic = work != kNoRow ? arithmetic_of(works_.dtype[work]) : arithmetic_of(DType::kBf16);
    const Sides now = sides(k).value_or(Sides());
    switch (kernel_bound(context_, k)) {
      case Bound::kMemory:  // or by its arithmetic, where that comes to be the longer
        if (!arithmetic || now.memory_ns <= 0) return {bytes_, 0};
        return {std::max(bytes_, *arithmetic * std::min(1.0, now.compute_ns / now.memory_ns)), 0};
      case Bound::kCompute:
        if (!arithmetic) {
          if (work != kNoRow) lacking_.insert(std::string(dtype_name(works_.dtype[work])));
          return {};
        }
        if (now.compute_ns <= 0) return {*arithmetic, 0};
        return {std::max(*arithmetic, bytes_ * std::min(1.0, now.memory_ns / now.compute_ns)), 0};
      case Bound::kLatency:
        return {clock(), 0};
      case Bound::kUnknown:  // the less favourable
        return {std::max(bytes_, arithmetic.value_or(bytes_)), 0};
      default:
        return {};
    }
  }
  // Types of products that its data sheet has no peak of.
  const std::set<std::string>& lacking() const { return lacking_; }

 private:
  OptDouble arithmetic_of(DType dtype) const {
    const OptDouble now = context_.device->peak_of(dtype), then = sheet_flops_per_s(gpu_, dtype);
    return now && then ? OptDouble(*now / *then) : std::nullopt;
  }
  double clock() const {
    const OptDouble now = context_.device->boost_mhz;
    return now && gpu_.boost_mhz ? *now / gpu_.boost_mhz->value : 1;
  }

  const Gpu& gpu_;
  double bytes_;
  mutable std::set<std::string> lacking_;
};

template <class Scaled>
std::vector<double> by_activity(const Context& context, const Scaled& groups) {
  const GpuOps& ops = context.trace.gpu_ops;
  std::vector<GroupScale> scales(context.groups.kernels.size());
  for (uint32_t k = 0; k < scales.size(); ++k)
    if (context.groups.kernels[k].calls > 0) scales[k] = groups.of(k);
  std::vector<double> out(ops.size(), 1);
  for (GpuOpId op = 0; op < ops.size(); ++op) {
    const GroupScale& scale = scales[context.groups.kernel_of[op]];
    if (static_cast<double>(ops.dur_ns[op]) >= scale.least_ns) out[op] = scale.factor;
  }
  return out;
}

bool is_shared_work(const Trace& trace, GpuOpId op) {
  return trace.gpu_ops.kind[op] == GpuOpKind::kKernel && trace.gpu_links.category[op] != Category::kCommunication;
}

// Why nothing is known of the GPU that the recording was made on; empty: it is known.
std::string gpu_not_known(const Context& context) {
  const DeviceReport* const device = context.device;
  if (device == nullptr) return "the recording does not say which GPU it is of";
  if (device->other_part) return "--gpu names another GPU than the one that was recorded";
  if (!device->sku) return fmt::format("{} is not in the hardware table", device->name);
  return {};
}

KernelScales at_full_clock(const Context& context) {
  if (std::string why = gpu_not_known(context); !why.empty()) return {{}, std::move(why)};
  const DeviceReport& device = *context.device;
  if (!device.sm_clock_mhz) return {{}, "the recording holds no SM clock"};
  if (!device.boost_mhz) return {{}, fmt::format("the hardware table has no highest clock of {}", *device.sku)};
  const double part = std::min(1.0, device.sm_clock_mhz->median / *device.boost_mhz);
  return {by_activity(context, FullClock(context, part)), {}};
}

KernelScales on_another_gpu(const Context& context, const std::string& name) {
  if (std::string why = gpu_not_known(context); !why.empty()) return {{}, std::move(why)};
  const Result<Gpu> gpu = find_gpu(name);
  if (!gpu) return {{}, gpu.error().what};
  const Known bandwidth = memory_bandwidth_gbs(*gpu);
  const OptDouble now = context.device->bytes_per_s;
  if (!bandwidth || !now)
    return {{}, fmt::format("the hardware table has no bandwidth of {}", bandwidth ? *context.device->sku : gpu->sku)};
  const AnotherGpu groups(context, *gpu, *now / (bandwidth->value * 1e9));
  KernelScales out{by_activity(context, groups), {}};
  if (!groups.lacking().empty())
    out.unknown = fmt::format("the hardware table has no peak of {} for both GPUs: products of it are left as they are",
                              fmt::join(groups.lacking(), " and "));
  return out;
}

KernelScales with_even_gpus(const Context& context) {
  const Trace& trace = context.trace;
  const std::map<StringId, std::map<int32_t, double>> stages = work_of_gpus(context);
  KernelScales out{std::vector<double>(trace.gpu_ops.size(), 1), {}};
  if (stages.empty()) out.unknown = "no pass of the model runs on several GPUs of one process";
  for (GpuOpId op = 0; op < trace.gpu_ops.size(); ++op) {
    const StepId step = trace.gpu_links.step[op];
    if (step == kNoRow || trace.steps.pass[step] == kNoRow || !is_shared_work(trace, op)) continue;
    const auto of_stage = stages.find(trace.steps.stage[step]);
    if (of_stage == stages.end() || of_stage->second.size() < 2) continue;
    double all_ns = 0;
    for (const auto& [device, ns] : of_stage->second) all_ns += ns;
    const double own_ns = of_stage->second.at(trace.device_of(op));
    out.factor[op] = all_ns / static_cast<double>(of_stage->second.size()) / own_ns;
  }
  return out;
}

}  // namespace

std::map<StringId, std::map<int32_t, double>> work_of_gpus(const Context& context) {
  const Trace& trace = context.trace;
  std::map<StringId, std::map<int32_t, double>> out;
  for (GpuOpId op = 0; op < trace.gpu_ops.size(); ++op) {
    const StepId step = trace.gpu_links.step[op];
    if (step != kNoRow && trace.steps.pass[step] != kNoRow && is_shared_work(trace, op))
      out[trace.steps.stage[step]][trace.device_of(op)] += static_cast<double>(trace.gpu_ops.dur_ns[op]);
  }
  return out;
}

KernelScales kernel_scales(const Context& context, Scale scale, const std::string& gpu) {
  if (on_cpu(context)) return {};
  switch (scale) {
    case Scale::kBatch:
      return {by_activity(context, DoubledBatch(context)), {}};
    case Scale::kClock:
      return at_full_clock(context);
    case Scale::kGpu:
      return on_another_gpu(context, gpu);
    case Scale::kEvenGpus:
      return with_even_gpus(context);
    case Scale::kNone:
    case Scale::kCount:
      break;
  }
  return {};
}

}  // namespace llmprof
