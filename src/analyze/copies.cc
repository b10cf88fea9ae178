#include "analyze/copies.h"

#include <fmt/format.h>

namespace llmprof {

std::string_view copy_path_name(CopyPath path) {
  switch (path) {
    case CopyPath::kHostToDevice:
      return "host to device";
    case CopyPath::kDeviceToHost:
      return "device to host";
    case CopyPath::kPeer:
      return "device to device";
    case CopyPath::kOnDevice:
      return "inside the device";
    default:
      return "unknown";
  }
}

OptDouble copy_bytes_per_s(const DeviceReport* device, CopyPath path) {
  if (device == nullptr) return std::nullopt;
  switch (path) {
    case CopyPath::kHostToDevice:
      return device->host_to_device.bytes_per_s;
    case CopyPath::kDeviceToHost:
      return device->device_to_host.bytes_per_s;
    case CopyPath::kPeer:
      return device->peer.bytes_per_s;
    case CopyPath::kOnDevice:
      return device->roof_bytes_per_s();
    default:
      return std::nullopt;
  }
}

double copy_traffic(CopyPath path, double moved) { return path == CopyPath::kOnDevice ? 2 * moved : moved; }

double activity_bytes(const Trace& trace, GpuOpId gpu_op) {
  if (trace.gpu_ops.kind[gpu_op] == GpuOpKind::kMemcpy && trace.gpu_ops.bytes[gpu_op] >= 0)
    return copy_traffic(trace.gpu_ops.path[gpu_op], static_cast<double>(trace.gpu_ops.bytes[gpu_op]));
  const WorkId work = trace.gpu_links.work[gpu_op];
  return work != kNoRow ? trace.works.bytes[work] : 0;
}

void CopySums::add(CopyPath path, int64_t copies, int64_t moved, int64_t time_ns) {
  PathSums& sums = paths[static_cast<size_t>(path)];
  sums.copies += copies;
  sums.bytes += copy_traffic(path, static_cast<double>(moved));
  sums.time_ns += static_cast<double>(time_ns);
}

CopySums sum_copies(const Context& context, std::span<const uint32_t> kernels) {
  CopySums out;
  for (const uint32_t k : kernels) {
    const KernelSums& sums = context.groups.kernels[k];
    if (!sums.copied_bytes || *sums.copied_bytes <= 0) continue;
    out.add(context.groups.kernel_keys.key(k).path, sums.calls, *sums.copied_bytes, sums.total_ns);
  }
  return out;
}

OptDouble least_copy_ns(const DeviceReport* device, const CopySums& sums) {
  double least_ns = 0;
  for (size_t p = 0; p < sums.paths.size(); ++p) {
    if (sums.paths[p].bytes <= 0) continue;
    const OptDouble rate = copy_bytes_per_s(device, static_cast<CopyPath>(p));
    if (!rate) return std::nullopt;
    least_ns += sums.paths[p].bytes / *rate * 1e9;
  }
  return least_ns > 0 ? OptDouble(least_ns) : std::nullopt;
}

void add_copy_rates(const DeviceReport* device, const CopySums& sums, std::vector<Evidence>& evidence) {
  constexpr double kWorthALine = 0.01;  // of the copies' time
  double all_ns = 0;
  for (const PathSums& of : sums.paths) all_ns += of.time_ns;
  for (size_t p = 0; p < sums.paths.size(); ++p) {
    const CopyPath path = static_cast<CopyPath>(p);
    const PathSums& of = sums.paths[p];
    if (path == CopyPath::kUnknown || of.time_ns <= kWorthALine * all_ns) continue;
    const bool on_device = path == CopyPath::kOnDevice;
    std::string metric = on_device ? "rate " : "rate from ";
    metric += copy_path_name(path);
    if (on_device) metric += ", read and written";
    if (const OptDouble ceiling = copy_bytes_per_s(device, path))
      metric += fmt::format(", of {:.3g} GB/s of {}", *ceiling / 1e9, on_device ? "its memory" : "the link");
    evidence.push_back({std::move(metric), of.bytes / of.time_ns, Unit::kGbs, Provenance::kMeasured});
  }
}

}  // namespace llmprof
