#include "derive/blocking_launches.h"

#include <algorithm>

namespace llmprof {

std::vector<std::pair<ApiCallId, int64_t>> blocking_launches(const Trace& trace) {
  constexpr int64_t kLongKernelNs = 10'000;
  constexpr int64_t kLeastCallNs = 1'000;
  constexpr int64_t kLaunchesMin = 20;
  const GpuOps& ops = trace.gpu_ops;
  const ApiCalls& calls = trace.api_calls;
  std::vector<uint32_t> launches(calls.size(), 0);
  for (GpuOpId op = 0; op < ops.size(); ++op)
    if (trace.gpu_links.api[op] != kNoRow) ++launches[trace.gpu_links.api[op]];
  std::vector<std::pair<ApiCallId, int64_t>> out;
  int64_t all = 0, blocking = 0;
  for (GpuOpId op = 0; op < ops.size(); ++op) {
    const ApiCallId call = trace.gpu_links.api[op];
    if (call == kNoRow || launches[call] != 1 || ops.kind[op] != GpuOpKind::kKernel) continue;
    const bool behind = calls.start_ns[call] + calls.dur_ns[call] >= ops.start_ns[op] + ops.dur_ns[op];
    if (ops.dur_ns[op] >= kLongKernelNs) ++all, blocking += behind;
    if (behind)
      out.emplace_back(call, std::clamp(ops.start_ns[op] - calls.start_ns[call],
                                        std::min(kLeastCallNs, calls.dur_ns[call]), calls.dur_ns[call]));
  }
  if (all < kLaunchesMin || 10 * blocking < 9 * all) return {};
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace llmprof
