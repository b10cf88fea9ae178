// What the host does between and in CUDA calls.
#include <algorithm>
#include <array>
#include <map>

#include "derive/blocking_launches.h"
#include "replay/what_if.h"

namespace llmprof::replay {
namespace {

// Code or a call of a thread, by how much longer it took than such things do.
struct HostStretch {
  int64_t excess_ns = 0;
  int64_t* ns = nullptr;  // where that is kept; null: it waited for the GPU, and nobody knows how long it would have
};

int64_t middle_of(std::vector<int64_t> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Of the calls of one thread, none of them within another.
class ThreadHost {
 public:
  ThreadHost(const Recording& recording, const std::vector<ApiCallId>& calls, Durations& durations)
      : recording_(recording), calls_(calls), durations_(durations) {
    std::vector<int64_t> before, in_calls;
    for (const ApiCallId call : calls_) {
      before.push_back(durations_.before_ns[call]);
      if (!recording_.waits(call)) in_calls.push_back(durations_.call_ns[call]);
    }
    usual_before_ns_ = middle_of(std::move(before));
    usual_call_ns_ = middle_of(std::move(in_calls));
  }

  // Who takes a CPU keeps it for a slice of time: what was waited lies in the longest stretches, not a little in each.
  void take_out(int64_t waited_ns, int64_t start_ns, int64_t end_ns) {
    std::vector<HostStretch> stretches;
    const auto& begins = recording_.trace().api_calls.start_ns;
    for (auto call =
             std::partition_point(calls_.begin(), calls_.end(), [&](ApiCallId one) { return begins[one] <= start_ns; });
         call != calls_.end() && begins[*call] <= end_ns; ++call) {
      int64_t& before = durations_.before_ns[*call];
      int64_t& own = durations_.call_ns[*call];
      stretches.push_back({before - usual_before_ns_, &before});
      stretches.push_back({own - usual_call_ns_, recording_.waits(*call) ? nullptr : &own});
    }
    std::stable_sort(stretches.begin(), stretches.end(),
                     [](const HostStretch& a, const HostStretch& b) { return a.excess_ns > b.excess_ns; });
    for (const HostStretch& stretch : stretches) {
      const int64_t ns = std::min(waited_ns, stretch.excess_ns);
      if (ns <= 0) return;
      waited_ns -= ns;
      if (stretch.ns != nullptr) *stretch.ns -= ns;
    }
  }

 private:
  const Recording& recording_;
  const std::vector<ApiCallId>& calls_;
  Durations& durations_;
  int64_t usual_before_ns_ = 0, usual_call_ns_ = 0;
};

}  // namespace

void without_allocations(const Recording& recording, Durations& durations, Latencies&) {
  for (ApiCallId call = 0; call < recording.trace().api_calls.size(); ++call)
    if (recording.kind(call) == ApiKind::kAllocator) durations.call_ns[call] = 0, durations.no_wait[call] = 1;
}

// The driver call below a call of the runtime ends with it.
void with_returning_launches(const Recording& recording, Durations& durations, Latencies&) {
  for (const auto& [call, ns] : blocking_launches(recording.trace()))
    durations.call_ns[call] = std::min(durations.call_ns[call], ns);
}

void with_own_cpu(const Recording& recording, Durations& durations, Latencies&) {
  const Trace& trace = recording.trace();
  const HostPaces& paces = trace.host_paces;
  std::map<ThreadId, std::vector<Row>> probes;  // in order of time
  for (Row row = 0; row < paces.size(); ++row) probes[paces.thread[row]].push_back(row);
  std::map<ThreadId, std::vector<ApiCallId>> calls;
  for (ApiCallId call = 0; call < trace.api_calls.size(); ++call)
    if (recording.timeline().nested[call] == 0) calls[trace.api_calls.thread[call]].push_back(call);
  for (const auto& [thread, rows] : probes) {
    const auto of_thread = calls.find(thread);
    if (of_thread == calls.end()) continue;
    ThreadHost host(recording, of_thread->second, durations);
    for (size_t i = 1; i < rows.size(); ++i)
      if (paces.waited_ns[rows[i]] > 0)
        host.take_out(paces.waited_ns[rows[i]], paces.start_ns[rows[i - 1]], paces.start_ns[rows[i]]);
  }
}

void without_host_gaps(const Recording& recording, Durations& durations, Latencies&) {
  for (ApiCallId call = 0; call < recording.trace().api_calls.size(); ++call) {
    int64_t& before = durations.before_ns[call];
    if (before >= kLongGapNs && !recording.timeline().lacks_input(call))
      before = std::min(kLongGapNs, recording.dispatch_ns());
  }
}

void with_fast_host(const Recording& recording, Durations& durations, Latencies& latencies) {
  for (ApiCallId call = 0; call < recording.trace().api_calls.size(); ++call)
    if (!recording.timeline().lacks_input(call)) durations.before_ns[call] = 0;
  std::vector<double> calls_ns(latencies.launches.size(), 0), count = calls_ns;  // by place in launches
  for (ApiCallId call = 0; call < recording.trace().api_calls.size(); ++call) {
    for (const GpuOpId op : recording.launched(call)) {
      const size_t place = latencies.launch_place(recording.timeline(), op);
      calls_ns[place] += static_cast<double>(durations.call_ns[call]);
      count[place] += 1;
    }
    if (!recording.waits(call)) durations.call_ns[call] = 0, durations.no_wait[call] = 1;
  }
  // A latency that is counted from the start of a call holds the call.
  for (size_t at = 0; at < count.size(); ++at) {
    Latencies::Launch& launch = latencies.launches[at];
    if (launch.at == 0 && count[at] > 0)
      launch.latency.ns = std::max(0.0, launch.latency.ns - calls_ns[at] / count[at]);
  }
}

}  // namespace llmprof::replay
