#include "analyze/exposed.h"

#include <algorithm>
#include <array>
#include <map>

namespace llmprof {
namespace {

// The latest end among the kernels seen so far, for each stream but one: two of different streams are enough.
class LatestEnds {
 public:
  void add(StreamId stream, int64_t end_ns) {
    Latest& mine = latest_[0].stream == stream ? latest_[0] : latest_[1];
    if (end_ns > mine.end_ns) mine = {stream, end_ns};
    if (latest_[1].end_ns > latest_[0].end_ns) std::swap(latest_[0], latest_[1]);
  }
  int64_t other_than(StreamId stream) const { return latest_[latest_[0].stream == stream ? 1 : 0].end_ns; }

 private:
  struct Latest {
    StreamId stream = kNoRow;
    int64_t end_ns = INT64_MIN;
  };
  std::array<Latest, 2> latest_;  // the later one first
};

}  // namespace

std::vector<int64_t> exposed_times(const Trace& trace) {
  const GpuOps& ops = trace.gpu_ops;
  std::vector<int64_t> out(ops.dur_ns.begin(), ops.dur_ns.end());
  const auto is_transfer = [&](Row g) {
    return ops.kind[g] == GpuOpKind::kMemcpy || trace.gpu_links.category[g] == Category::kCommunication;
  };
  struct Device {
    std::vector<Row> transfers, kernels;
  };
  std::map<int32_t, Device> devices;
  for (Row g = 0; g < ops.size(); ++g) {
    Device& device = devices[trace.device_of(g)];
    if (is_transfer(g)) device.transfers.push_back(g);
    if (ops.kind[g] == GpuOpKind::kKernel && !is_transfer(g)) device.kernels.push_back(g);
  }
  for (auto& [ordinal, device] : devices) {
    const auto end_of = [&](Row g) { return ops.start_ns[g] + ops.dur_ns[g]; };
    std::sort(device.transfers.begin(), device.transfers.end(), [&](Row a, Row b) { return end_of(a) < end_of(b); });
    std::sort(device.kernels.begin(), device.kernels.end(),
              [&](Row a, Row b) { return ops.start_ns[a] < ops.start_ns[b]; });
    LatestEnds ends;
    size_t next = 0;
    for (const Row transfer : device.transfers) {
      const int64_t end_ns = end_of(transfer);
      for (; next < device.kernels.size() && ops.start_ns[device.kernels[next]] < end_ns; ++next)
        ends.add(ops.stream[device.kernels[next]], end_of(device.kernels[next]));
      const int64_t hidden_until = std::clamp(ends.other_than(ops.stream[transfer]), ops.start_ns[transfer], end_ns);
      out[transfer] = end_ns - hidden_until;
    }
  }
  return out;
}

}  // namespace llmprof
