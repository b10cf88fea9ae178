#include "analyze/roof.h"

#include <algorithm>

#include "analyze/copies.h"

namespace llmprof {
namespace {

// A rate above the memory's shows that operands came from a cache. Of a measured ceiling runs differ by so much; a data
// sheet's cannot be exceeded.
constexpr double kAboveMeasured = 1.05;

// Share of a product's traffic that is its result; 0 for all else, whose bytes are not told apart.
double write_share(const Works& works, WorkId work) {
  if (works.kind[work] != WorkKind::kGemm || !(works.bytes[work] > 0)) return 0;
  const double result = static_cast<double>(works.batch[work]) * static_cast<double>(works.m[work]) *
                        static_cast<double>(works.n[work]) * dtype_bytes(works.dtype[work]);
  return std::clamp(result / works.bytes[work], 0.0, 1.0);
}

// The bandwidth that memory gives to this mix of reads and writes: products mostly read.
OptDouble memory_rate(const DeviceReport& device, const Works& works, WorkId work) {
  if (works.kind[work] == WorkKind::kGemm)
    if (const std::optional<double> gbs = memory_ceiling_for(device.measured_bandwidths, write_share(works, work)))
      return *gbs * 1e9;
  return device.roof_bytes_per_s();
}

// Time that the traffic takes at least, and at which rate. Empty if nothing is known to take any.
struct Traffic {
  double bytes = 0;
  double bytes_per_s = 0;
  bool cache = false;
  double ns() const { return bytes / bytes_per_s * 1e9; }
};
std::optional<Traffic> least_traffic(const Context& context, uint32_t kernel, CacheKeeps keeps) {
  const DeviceReport& device = *context.device;
  const Works& works = context.trace.works;
  const KernelKey& key = context.groups.kernel_keys.key(kernel);
  const double calls = static_cast<double>(context.groups.kernels[kernel].calls), all = works.bytes[key.work] * calls;
  if (!(all > 0)) return std::nullopt;
  // A cache of unknown size may hold everything, and does where memory is slower.
  double from_memory = keeps == CacheKeeps::kNothing ? all : 0;
  if (device.cache_bytes)
    from_memory =
        bytes_from_memory(works, key.work, context.groups.stages[key.stage], *device.cache_bytes, keeps) * calls;
  std::optional<Traffic> out;
  if (const OptDouble memory = memory_rate(device, works, key.work); memory && from_memory > 0)
    out = Traffic{from_memory, *memory};
  const std::map<std::string, MeasuredRate>::const_iterator cache = device.measured_bandwidths.find("cache_read");
  if (cache != device.measured_bandwidths.end() && from_memory < all) {
    const Traffic at_cache{all, cache->second.value * 1e9, true};
    if (!out || at_cache.ns() > out->ns()) out = at_cache;
  }
  return out;
}

void place(const Context& context, uint32_t kernel, const std::optional<Traffic>& traffic, KernelRoof& out) {
  const WorkKind kind = context.trace.works.kind[context.groups.kernel_keys.key(kernel).work];
  const bool arithmetic = kind == WorkKind::kGemm || kind == WorkKind::kAttention || kind == WorkKind::kConvolution;
  const KernelSums& sums = context.groups.kernels[kernel];
  const double total_ns = static_cast<double>(sums.total_ns), calls = static_cast<double>(sums.calls);
  const OptDouble memory = context.device->roof_bytes_per_s();
  out.bytes_per_s.reset();
  out.point = {};
  if (traffic) {
    out.bytes_per_s = traffic->bytes_per_s;
    out.held_bytes = traffic->bytes;
    out.cache = traffic->cache;
    out.point = place_on_roof(out.flops, traffic->bytes, total_ns, calls, out.flops_per_s, traffic->bytes_per_s);
  } else if (arithmetic && memory) {  // from the cache, at a rate that is not known: held against arithmetic alone
    out.point = place_on_roof(out.flops, 0, total_ns, calls, out.flops_per_s, memory);
    out.point.memory_ns.reset();
  } else if (memory) {  // a pass over operands in the cache: its nature is known, its roof is not
    out.point.bound = place_on_roof(out.flops, out.bytes, total_ns, calls, out.flops_per_s, memory).bound;
  }
}

// An SM loads and stores no more than this in a cycle, whatever the operands come from.
constexpr double kSmBytesPerCycle = 128;

// Whether the kernel cannot have moved the bytes that its operator's shapes give in the time it took: they are those of
// several kernels, or of none that was recorded. Operands beyond the cache's size come from memory in any case.
bool beyond_the_hardware(const Context& context, uint32_t kernel, double bytes) {
  const DeviceReport& device = *context.device;
  const KernelSums& sums = context.groups.kernels[kernel];
  if (device.cpu || device.other_part) return false;
  const double limit_ns = kAboveMeasured * static_cast<double>(sums.total_ns);
  const OptDouble clock_mhz = device.boost_mhz ? device.boost_mhz : device.peak_clock_mhz;
  if (device.sm_count && clock_mhz) {
    const double bytes_per_ns = static_cast<double>(*device.sm_count) * kSmBytesPerCycle * *clock_mhz / 1e3;
    if (bytes / bytes_per_ns > limit_ns) return true;
  }
  if (!device.cache_bytes || !device.bytes_per_s) return false;
  const double from_memory = bytes - static_cast<double>(sums.calls) * *device.cache_bytes;
  return from_memory / *device.bytes_per_s * 1e9 > limit_ns;
}

KernelRoof copy_roof(const Context& context, uint32_t kernel) {
  KernelRoof out;
  const KernelSums& sums = context.groups.kernels[kernel];
  const CopyPath path = context.groups.kernel_keys.key(kernel).path;
  out.known = true;
  out.link = true;
  out.bytes = copy_traffic(path, static_cast<double>(*sums.copied_bytes));
  out.bytes_per_s = copy_bytes_per_s(context.device, path);
  if (out.bytes_per_s) out.point.roof_ns = out.point.memory_ns = out.bytes / *out.bytes_per_s * 1e9;
  out.point.bound = Bound::kCopy;
  return out;
}

}  // namespace

double bytes_from_memory(const Works& works, WorkId work, const StageGroup& stage, double cache_bytes,
                         CacheKeeps keeps) {
  const double weights = works.weight_bytes[work], kv = works.kv_bytes[work];
  const double rest = works.bytes[work] - weights - kv;
  const double read =
      (stage.weight_bytes + stage.kv_bytes) / static_cast<double>(std::max<size_t>(1, stage.steps.size()));
  const double kept = keeps == CacheKeeps::kAllItCan ? cache_bytes : 0;
  const double evicted = read > cache_bytes ? 1 - kept / read : 0;  // share of what the step reads
  // Of parts larger than the cache, what it does not hold even if it holds nothing else.
  const auto beyond = [&](double bytes) { return bytes > cache_bytes ? bytes - kept : 0; };
  // Keys of the tokens that the step runs on have just been written.
  double old_keys = 1;
  if (works.kind[work] == WorkKind::kAttention && works.n[work] > 0)
    old_keys = std::max(0.0, static_cast<double>(works.n[work] - works.m[work]) / static_cast<double>(works.n[work]));
  return std::max(evicted * weights, beyond(weights)) + std::max(evicted * kv * old_keys, beyond(kv)) + beyond(rest);
}

KernelRoof kernel_roof(const Context& context, uint32_t kernel) {
  const KernelKey& key = context.groups.kernel_keys.key(kernel);
  const KernelSums& sums = context.groups.kernels[kernel];
  if (sums.copied_bytes && *sums.copied_bytes > 0) return copy_roof(context, kernel);
  KernelRoof out;
  const Works& works = context.trace.works;
  if (key.work == kNoRow || sums.kind == GpuOpKind::kMemcpy) return out;
  out.known = true;
  out.flops = works.flops[key.work] * static_cast<double>(sums.calls);
  out.bytes = works.bytes[key.work] * static_cast<double>(sums.calls);
  if (context.device == nullptr || sums.total_ns <= 0) return out;
  if (beyond_the_hardware(context, kernel, out.bytes)) return {};
  out.flops_per_s = context.device->roof_of(works.dtype[key.work]);
  place(context, kernel, least_traffic(context, kernel, CacheKeeps::kNothing), out);
  // Held against another part (--gpu), rates may well exceed its own.
  if (context.device->other_part || !out.point.memory_ns) return out;
  const double total_ns = static_cast<double>(sums.total_ns);
  const double above = context.device->measured_bytes_per_s ? kAboveMeasured : 1;
  if (*out.point.memory_ns <= above * total_ns) return out;
  // Not all of it came from memory, or not at that rate. What the cache cannot have kept did, and what the cache gives
  // is the roof of the rest where it is known.
  const Bound bound = out.point.bound;
  place(context, kernel, least_traffic(context, kernel, CacheKeeps::kAllItCan), out);
  if (!out.bytes_per_s || out.point.memory_ns.value_or(0) > kAboveMeasured * total_ns) {
    out.bytes_per_s.reset();
    out.held_bytes = 0;
    out.cache = false;
    out.point = {};
    out.point.bound = bound;
  }
  return out;
}

Bound kernel_bound(const Context& context, uint32_t kernel) {
  return kernel_bound(context, kernel, kernel_roof(context, kernel));
}

Bound kernel_bound(const Context& context, uint32_t kernel, const KernelRoof& roof) {
  const KernelKey& key = context.groups.kernel_keys.key(kernel);
  const KernelSums& sums = context.groups.kernels[kernel];
  if (sums.kind != GpuOpKind::kKernel) return Bound::kCopy;  // kernels that copy or cast are passes over memory
  if (key.category == Category::kCommunication) return Bound::kComm;
  if (roof.point.bound != Bound::kUnknown) return roof.point.bound;
  const double total_ns = static_cast<double>(sums.total_ns), calls = static_cast<double>(sums.calls);
  if (is_arithmetic(key.category) || key.category == Category::kOther)
    return total_ns < calls * kShortKernelNs / 2 ? Bound::kLatency : Bound::kUnknown;
  return total_ns < calls * kShortKernelNs ? Bound::kLatency : Bound::kMemory;
}

}  // namespace llmprof
