// Counterfactuals: what a step would take if something about the program were otherwise. Each changes what a replay
// keeps constant (replay.h), and the replay tells what comes of it: work beside the longest chain of dependencies gains
// nothing, and what comes to the fore in its place is counted. Adding one: docs/howto/add-a-what-if.md.
#pragma once

#include <array>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "replay/replay.h"
#include "replay/undisturbed.h"

namespace llmprof::replay {

// What copies between the host and the GPU reach at most, bytes per ns; 0: not known.
struct LinkRates {
  double to_device = 0, to_host = 0;
};

// What kernels would take, ns by activity, if something about them were otherwise: kStays where nothing changes, 0
// where the kernel goes with its launch. Replay knows neither shapes nor peaks; whoever does says it
// (analyze/kernel_times.h).
enum class KernelChange : uint8_t {
  kRoofline,
  kHalfPrecision,
  kAligned,
  kFp8Weights,
  kCacheInPlace,
  kFusedAttention,
  kLastLogits,
  kRoutedExperts,
  kFusedNorms,
  kNeededRows,
  kNeededKeys,
  kReadyWeights,
  kProductsKept,
  kMergedAdapters,
  kWeightsKept,
  kOnePass,
  kNoMoves,
  kLargestOnly,
  kJoinedProducts,
  kCachedKeys,
  kSmallTensors,
  kWeightsInPlace,
  kSinglePrecision,
  kChannelsLast,
  kCount
};
constexpr int64_t kStays = -1;
using KernelTimes = std::array<std::vector<int64_t>, static_cast<size_t>(KernelChange::kCount)>;  // empty: not known

// By how much longer activities would take if what all of them depend on were otherwise; said by whoever knows shapes
// and peaks (analyze/kernel_scales.h).
enum class Scale : uint8_t { kNone, kBatch, kClock, kGpu, kEvenGpus, kCount };
struct KernelScales {
  std::vector<double> factor;  // by activity; empty: not known
  std::string unknown;         // what is not known of them, and why; empty: nothing
};

// A replay with which step each call belongs to.
class Recording {
 public:
  // `costs`: what was measured on its machine, as far as it was. Both must outlive it.
  Recording(const StepReplay& replay, const RecorderCostModel& costs, LinkRates rates = {}, KernelTimes times = {});

  const Timeline& timeline() const { return replay_.timeline(); }
  const Trace& trace() const { return timeline().trace; }
  const RecorderCostModel& costs() const { return costs_; }
  const LinkRates& rates() const { return rates_; }
  const KernelTimes& kernel_times() const { return kernel_times_; }
  const KernelScales& scales(Scale scale) const { return scales_[static_cast<size_t>(scale)]; }
  void set_scales(Scale scale, KernelScales scales) { scales_[static_cast<size_t>(scale)] = std::move(scales); }
  ApiKind kind(ApiCallId call) const { return timeline().calls.kind(call); }
  StepId step_of(ApiCallId call) const { return step_of_[call]; }  // kNoRow: of none that is replayed
  // Whether the call is the wait that a step ends with.
  bool ends_step(ApiCallId call) const { return ends_step_[call] != 0; }
  // Whether a call that ends a step keeps another GPU of its process from working meanwhile and brings the host
  // nothing: no copy to it was made since the wait before.
  bool ends_in_vain(ApiCallId call) const { return !in_vain_.empty() && in_vain_[call] != 0; }
  bool waits(ApiCallId call) const;  // for the GPU, and for something
  LaunchedOps launched(ApiCallId call) const;
  // Median of the host code that leads to the launch of a kernel, ns: what the dispatch of an operator takes.
  int64_t dispatch_ns() const { return dispatch_ns_; }

 private:
  void find_waits_in_vain();

  const StepReplay& replay_;
  const RecorderCostModel& costs_;
  LinkRates rates_;
  KernelTimes kernel_times_;
  std::array<KernelScales, static_cast<size_t>(Scale::kCount)> scales_;
  std::vector<StepId> step_of_;
  std::vector<uint8_t> ends_step_;
  std::vector<uint8_t> in_vain_;  // by call; empty where no process has several GPUs
  int64_t dispatch_ns_ = 0;
};

struct WhatIf {
  std::string_view id;
  std::string_view what;  // what would be otherwise, as a noun phrase
  std::string_view how;   // what the replay changes, and what it takes for granted
  void (*change)(const Recording&, Durations&, Latencies&);
  // Why steps like these cannot be so with what is changed already; empty: nothing is known that forbids it. Null:
  // nothing can.
  std::string (*forbidden)(const Recording&, const Durations&, std::span<const StepId>);
  Scale scale = Scale::kNone;  // the recording must have it before the change
  double tokens = 1;           // that a step makes then, over now
  bool names_gpu = false;      // its name is followed by a colon and that of a GPU
};

std::span<const WhatIf> what_ifs();
const WhatIf* find_what_if(std::string_view id);  // null: there is none

// From the end of a kernel to the start of the one behind it on an H100, where nothing better is known.
constexpr double kApartNs = 800;
// What the recording never showed and a change may bring to light: how far apart kernels lie where the GPU is behind
// (as was measured on this machine, else kApartNs), and what a wait takes to wake up (what it takes where it need not
// wait). Call before any change.
void assume_unseen(const RecorderCostModel& costs, Latencies& latencies);

// Host code at least this long is no dispatch: one operator of an eager framework takes 5 to 40 us, Python code of its
// module included.
constexpr int64_t kLongGapNs = 200'000;

// ---- one file each ----
void without_waits(const Recording&, Durations&, Latencies&);
void with_last_wait_only(const Recording&, Durations&, Latencies&);
void with_returning_launches(const Recording&, Durations&, Latencies&);
void with_own_cpu(const Recording&, Durations&, Latencies&);
void with_reads_at_once(const Recording&, Durations&, Latencies&);
void without_copies(const Recording&, Durations&, Latencies&);
void with_pinned_copies(const Recording&, Durations&, Latencies&);
void with_fused_passes(const Recording&, Durations&, Latencies&);
void without_allocations(const Recording&, Durations&, Latencies&);
void at_roofline(const Recording&, Durations&, Latencies&);
void in_half_precision(const Recording&, Durations&, Latencies&);
void with_aligned_sizes(const Recording&, Durations&, Latencies&);
void with_fp8_weights(const Recording&, Durations&, Latencies&);
void with_cache_in_place(const Recording&, Durations&, Latencies&);
void with_fused_attention(const Recording&, Durations&, Latencies&);
void with_last_logits(const Recording&, Durations&, Latencies&);
void with_fused_norms(const Recording&, Durations&, Latencies&);
void with_routed_experts(const Recording&, Durations&, Latencies&);
void with_needed_rows(const Recording&, Durations&, Latencies&);
void with_needed_keys(const Recording&, Durations&, Latencies&);
void with_ready_weights(const Recording&, Durations&, Latencies&);
void with_products_kept(const Recording&, Durations&, Latencies&);
void with_merged_adapters(const Recording&, Durations&, Latencies&);
void with_weights_kept(const Recording&, Durations&, Latencies&);
void with_one_pass(const Recording&, Durations&, Latencies&);
std::string one_pass_forbidden(const Recording&, const Durations&, std::span<const StepId>);
void without_moves(const Recording&, Durations&, Latencies&);
void with_largest_only(const Recording&, Durations&, Latencies&);
void with_joined_products(const Recording&, Durations&, Latencies&);
void with_cached_keys(const Recording&, Durations&, Latencies&);
void with_small_tensors(const Recording&, Durations&, Latencies&);
void with_channels_last(const Recording&, Durations&, Latencies&);
void in_single_precision(const Recording&, Durations&, Latencies&);
void with_weights_in_place(const Recording&, Durations&, Latencies&);
void without_host_gaps(const Recording&, Durations&, Latencies&);
void without_communication(const Recording&, Durations&, Latencies&);
void with_even_ranks(const Recording&, Durations&, Latencies&);
void with_streams_apart(const Recording&, Durations&, Latencies&);
void with_copies_apart(const Recording&, Durations&, Latencies&);
void with_graphs_kept(const Recording&, Durations&, Latencies&);
void with_graph(const Recording&, Durations&, Latencies&);
std::string graph_forbidden(const Recording&, const Durations&, std::span<const StepId>);
void with_fast_host(const Recording&, Durations&, Latencies&);
void with_fast_gpu(const Recording&, Durations&, Latencies&);
void with_doubled_batch(const Recording&, Durations&, Latencies&);
void at_full_clock(const Recording&, Durations&, Latencies&);
std::string clock_unknown(const Recording&, const Durations&, std::span<const StepId>);
void with_even_gpus(const Recording&, Durations&, Latencies&);
void on_another_gpu(const Recording&, Durations&, Latencies&);
std::string gpu_unknown(const Recording&, const Durations&, std::span<const StepId>);

// ---- what they share ----
// A call goes, with what it launches and with as much of the host code before it as the dispatch of an operator takes:
// the rest is the program's own.
void take_away(const Recording&, ApiCallId call, Durations&);
// Streams of one GPU of which the kernels of a step wait for each other's time and again.
StreamPairs taking_turns(const Recording&);
// A graph that was captured, by its thread's calls.
struct MadeGraph {
  ApiCallId begin = kNoRow, instantiated = kNoRow;
  ApiCallId launch = kNoRow;  // the first graph launch behind it, kNoRow: there was none before the next capture
};
std::vector<MadeGraph> made_graphs(const Trace& trace);
// Streams that copy to the GPU and to the host, and compute nothing.
std::set<StreamId> copying_both_ways(const Trace& trace);
// Whether a call copies pageable memory to the GPU: it waits for that, which pinned memory would spare it.
bool copies_pageable_in(const Recording&, ApiCallId call);

}  // namespace llmprof::replay
