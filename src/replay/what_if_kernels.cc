// Kernels that would take less: how long, those say who know their shapes (KernelTimes).
#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <vector>

#include "replay/what_if.h"

namespace llmprof::replay {
namespace {

void with_times(const Recording& recording, const std::vector<int64_t>& times, Durations& durations) {
  if (times.empty()) return;
  for (GpuOpId op = 0; op < times.size(); ++op)
    if (times[op] > 0) durations.op_ns[op] = std::min(durations.op_ns[op], times[op]);
  std::map<ThreadId, bool> went;  // whether the last call that launched anything did
  for (ApiCallId call = 0; call < recording.trace().api_calls.size(); ++call) {
    const LaunchedOps launched = recording.launched(call);
    if (launched.empty()) continue;
    const auto goes = [&](GpuOpId op) { return times[op] == 0 && durations.gone[op] == 0; };
    bool& before = went[recording.trace().api_calls.thread[call]];
    const bool all = std::all_of(launched.begin(), launched.end(), goes);
    if (all) {
      take_away(recording, call, durations);
      // Code between two that go is theirs.
      if (before && durations.before_ns[call] < kLongGapNs) durations.before_ns[call] = 0;
    } else {
      for (const GpuOpId op : launched)
        if (goes(op)) durations.gone[op] = 1;
    }
    before = all;
  }
}
void with_times(const Recording& recording, KernelChange change, Durations& durations) {
  with_times(recording, recording.kernel_times()[static_cast<size_t>(change)], durations);
}

}  // namespace

void at_roofline(const Recording& recording, Durations& durations, Latencies&) {
  with_times(recording, KernelChange::kRoofline, durations);
}
void in_half_precision(const Recording& recording, Durations& durations, Latencies&) {
  with_times(recording, KernelChange::kHalfPrecision, durations);
}
void with_aligned_sizes(const Recording& recording, Durations& durations, Latencies&) {
  with_times(recording, KernelChange::kAligned, durations);
}
void with_fp8_weights(const Recording& recording, Durations& durations, Latencies&) {
  with_times(recording, KernelChange::kFp8Weights, durations);
}
void with_cache_in_place(const Recording& recording, Durations& durations, Latencies&) {
  with_times(recording, KernelChange::kCacheInPlace, durations);
}
void with_fused_attention(const Recording& recording, Durations& durations, Latencies&) {
  with_times(recording, KernelChange::kFusedAttention, durations);
}
void with_last_logits(const Recording& recording, Durations& durations, Latencies&) {
  with_times(recording, KernelChange::kLastLogits, durations);
}
// Norms of which a pass is gone were fused before, with what is about them.
void with_fused_norms(const Recording& recording, Durations& durations, Latencies&) {
  std::vector<int64_t> times = recording.kernel_times()[static_cast<size_t>(KernelChange::kFusedNorms)];
  struct Chain {
    std::vector<GpuOpId> ops;
    bool fused = false;
  };
  std::map<StreamId, Chain> chains;
  const auto close = [&](Chain& chain) {
    if (chain.fused)
      for (const GpuOpId op : chain.ops) times[op] = kStays;
    chain = {};
  };
  for (GpuOpId op = 0; op < times.size(); ++op) {
    Chain& chain = chains[recording.trace().gpu_ops.stream[op]];
    if (times[op] == kStays) {
      close(chain);
      continue;
    }
    chain.ops.push_back(op);
    chain.fused |= durations.gone[op] != 0;
  }
  for (auto& [stream, chain] : chains) close(chain);
  with_times(recording, times, durations);
}
// By the part that is left: a pass may stand for others that were fused with it.
void with_routed_experts(const Recording& recording, Durations& durations, Latencies&) {
  const std::vector<int64_t>& times = recording.kernel_times()[static_cast<size_t>(KernelChange::kRoutedExperts)];
  const auto& recorded_ns = recording.trace().gpu_ops.dur_ns;
  for (GpuOpId op = 0; op < times.size(); ++op)
    if (times[op] > 0 && times[op] < recorded_ns[op])
      durations.op_ns[op] = std::llround(static_cast<double>(durations.op_ns[op]) * static_cast<double>(times[op]) /
                                         static_cast<double>(recorded_ns[op]));
}
void with_needed_rows(const Recording& recording, Durations& durations, Latencies&) {
  with_times(recording, KernelChange::kNeededRows, durations);
}
void with_needed_keys(const Recording& recording, Durations& durations, Latencies&) {
  with_times(recording, KernelChange::kNeededKeys, durations);
}

void with_ready_weights(const Recording& recording, Durations& durations, Latencies&) {
  with_times(recording, KernelChange::kReadyWeights, durations);
}
void with_products_kept(const Recording& recording, Durations& durations, Latencies&) {
  with_times(recording, KernelChange::kProductsKept, durations);
}
void with_merged_adapters(const Recording& recording, Durations& durations, Latencies&) {
  with_times(recording, KernelChange::kMergedAdapters, durations);
}
void with_weights_kept(const Recording& recording, Durations& durations, Latencies&) {
  with_times(recording, KernelChange::kWeightsKept, durations);
}
void with_one_pass(const Recording& recording, Durations& durations, Latencies&) {
  with_times(recording, KernelChange::kOnePass, durations);
}
void without_moves(const Recording& recording, Durations& durations, Latencies&) {
  with_times(recording, KernelChange::kNoMoves, durations);
}
void with_largest_only(const Recording& recording, Durations& durations, Latencies&) {
  with_times(recording, KernelChange::kLargestOnly, durations);
}
void with_joined_products(const Recording& recording, Durations& durations, Latencies&) {
  with_times(recording, KernelChange::kJoinedProducts, durations);
}
// Products of a text that has grown are of shapes that were never run: long host code before launches in such steps is
// the search for their kernels.
void with_cached_keys(const Recording& recording, Durations& durations, Latencies&) {
  with_times(recording, KernelChange::kCachedKeys, durations);
  const std::vector<int64_t>& times = recording.kernel_times()[static_cast<size_t>(KernelChange::kCachedKeys)];
  std::set<StepId> uncached;
  for (GpuOpId op = 0; op < times.size(); ++op)
    if (times[op] != kStays) uncached.insert(recording.trace().gpu_links.step[op]);
  for (ApiCallId call = 0; call < recording.trace().api_calls.size(); ++call)
    if (durations.before_ns[call] >= kLongGapNs && !recording.launched(call).empty() &&
        uncached.count(recording.step_of(call)) > 0)
      durations.before_ns[call] = std::min(durations.before_ns[call], recording.dispatch_ns());
}
void with_channels_last(const Recording& recording, Durations& durations, Latencies&) {
  with_times(recording, KernelChange::kChannelsLast, durations);
}
void in_single_precision(const Recording& recording, Durations& durations, Latencies&) {
  with_times(recording, KernelChange::kSinglePrecision, durations);
}
void with_weights_in_place(const Recording& recording, Durations& durations, Latencies&) {
  with_times(recording, KernelChange::kWeightsInPlace, durations);
}
void with_small_tensors(const Recording& recording, Durations& durations, Latencies&) {
  with_times(recording, KernelChange::kSmallTensors, durations);
}

}  // namespace llmprof::replay
