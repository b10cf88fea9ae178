#include "replay/meetings.h"

#include <algorithm>
#include <map>

#include "trace/rank_collectives.h"

namespace llmprof::replay {
namespace {

// Clocks of the GPUs of one host agree to some microseconds.
constexpr int64_t kClocksApartNs = 10'000;

// What a GPU ran of collectives, in order of time.
struct Taken {
  std::vector<GpuOpId> ops;
  size_t next = 0;
  bool done() const { return next == ops.size(); }
  GpuOpId op() const { return ops[next]; }
};

int64_t last_start(const Trace& trace, const Meeting& meeting) {
  int64_t last = trace.gpu_ops.start_ns[meeting.front()];
  for (const GpuOpId op : meeting) last = std::max(last, trace.gpu_ops.start_ns[op]);
  return last;
}

// Of joined ranks, whose recordings say who took part in which, or whose kernels have been matched.
std::vector<Meeting> meetings_of_ranks(const Trace& trace) {
  const RankCollectives ranks = rank_collectives(trace);
  std::vector<Meeting> out;
  for (const JoinedCollective& one : ranks.joined) {
    if (!ranks.met(one)) continue;
    Meeting& meeting = out.emplace_back();
    for (const uint32_t call : one.calls) meeting.push_back(ranks.calls[call].op);
  }
  return out;
}

}  // namespace

std::vector<Meeting> find_meetings(const Trace& trace) {
  if (!trace.ranks.empty()) return meetings_of_ranks(trace);
  std::map<int32_t, Taken> devices;
  for (Row op = 0; op < trace.gpu_ops.size(); ++op)
    if (trace.gpu_links.category[op] == Category::kCommunication && trace.gpu_ops.kind[op] == GpuOpKind::kKernel)
      devices[trace.device_of(op)].ops.push_back(op);
  std::vector<Meeting> out;
  if (devices.size() < 2) return out;
  while (std::none_of(devices.begin(), devices.end(), [](const auto& device) { return device.second.done(); })) {
    Meeting all;
    Taken* first = nullptr;  // to end
    for (auto& [device, taken] : devices) {
      all.push_back(taken.op());
      if (first == nullptr || trace.end_of(taken.op()) < trace.end_of(first->op())) first = &taken;
    }
    const bool at_once = trace.end_of(first->op()) + kClocksApartNs >= last_start(trace, all);
    const bool alike = std::all_of(
        all.begin(), all.end(), [&](GpuOpId op) { return trace.gpu_ops.name[op] == trace.gpu_ops.name[all.front()]; });
    if (!at_once || !alike) {
      ++first->next;  // the others were not recorded, or are of another group
      continue;
    }
    for (auto& [device, taken] : devices) ++taken.next;
    out.push_back(std::move(all));
  }
  return out;
}

int64_t waited_ns(const Trace& trace, const Meeting& meeting, GpuOpId op) {
  return std::clamp<int64_t>(last_start(trace, meeting) - trace.gpu_ops.start_ns[op], 0, trace.gpu_ops.dur_ns[op]);
}

}  // namespace llmprof::replay
