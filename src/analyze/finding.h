// Findings: what is wrong, with numbers of this run, what to change, and how much that can bring at most. One function
// and one row of the registry (finding_registry.cc) each; thresholds stand beside the rule with their reason.
// A wrong finding costs more than a missing one: a rule that lacks its data says nothing here and, where a reader
// would expect an answer, something under cannot_tell. Adding one: docs/howto/add-a-finding.md.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "analyze/analysis.h"
#include "analyze/roof.h"
#include "derive/recorded_spans.h"

namespace llmprof {

// One stage with everything the rules look at.
struct StageView {
  uint32_t stage = 0;  // row of Groups::stages
  const StageGroup* group = nullptr;
  const StageTiming* timing = nullptr;
  std::vector<uint32_t> kernels;                 // rows of Groups::kernels
  int64_t long_host_ns = 0, long_host_gaps = 0;  // single idle intervals of host work of at least kLongGapNs
  int64_t kv_copy_ns = 0, kv_copies = 0;         // concatenations that copy a cache to append to it
  int64_t boundary_ns = 0, boundary_gaps = 0;    // of the long ones, before the first activity of a step
  int64_t after_sync_ns = 0, after_syncs = 0;    // short gaps that begin while the host waits for the GPU; live only
  int64_t prepare_ns = 0, long_prepare_ns = 0, long_prepare_gaps = 0;  // behind functions that prepare inputs
  std::vector<CategoryRecord> categories;
  int64_t least_gpu = 0;  // ns that the GPUs need for its steps at least: Groups::least_gpu_ns

  // All of complete steps, so that shares and figures per step hold whatever part of the time was recorded.
  double wall_ns() const { return static_cast<double>(timing->wall_ms.ns); }
  double busy_ns() const { return static_cast<double>(timing->gpu_busy_ms.ns); }
  double least_gpu_ns() const { return static_cast<double>(least_gpu); }
  double count() const { return static_cast<double>(timing->count); }
  double per_step_ms(double ns) const { return ns / count() / 1e6; }
  bool graph_replay() const { return group->launches * 4 < group->gpu_ops; }
  // Idle time because the host did not launch in time.
  int64_t host_idle_ns() const;
  // "TPOT" for decode, "TTFT" for prefill, "time per step" for the rest; all in ms.
  std::string time_metric() const;
};

// Functions that prepare a model's inputs, by the names that frameworks give them.
bool prepares_inputs(std::string_view python_name);

// A host gap at least this long is no launch overhead: dispatching one operator of an eager framework, Python code of
// its module included, takes 5 to 40 us.
constexpr int64_t kLongGapNs = 200'000;

struct FindingContext {
  const Context& context;
  const Report& report;
  std::vector<StageView> stages;               // with at least one step and some GPU time
  double window_ns = 0;                        // of all devices, recorded or not
  std::map<int32_t, int64_t> serving_from_ns;  // serving_starts(): what comes before is warm-up, and not judged
  std::vector<Finding>* out = nullptr;

  const Trace& trace() const { return context.trace; }
  // Recorded by llmprof itself: rules go by API calls, kernels and library calls where there are no operators.
  bool before_serving(int32_t device, int64_t time_ns) const {
    const std::map<int32_t, int64_t>::const_iterator from = serving_from_ns.find(device);
    return from != serving_from_ns.end() && time_ns < from->second;
  }
  // A sum over a stage's recorded part, scaled to the whole recording (Groups): what window_ns is compared with.
  double whole_ns(uint32_t stage, double sum_ns) const { return sum_ns * context.groups.stages[stage].scale; }
  bool live() const { return is_live_recording(context.trace); }
  const KernelKey& key(uint32_t kernel) const { return context.groups.kernel_keys.key(kernel); }
  const KernelSums& sums(uint32_t kernel) const { return context.groups.kernels[kernel]; }
  // Adds a finding whose severity follows from its saving over window_ns: critical from 30 %, major from 10 %, minor
  // from 3 %, info below; `cap` lowers it. `gain_ns` of a stage is the sum over its complete steps and is scaled here;
  // without a stage it is of the whole recording already (whole_ns).
  Finding& add(std::string_view id, const StageView* stage, std::string title, double gain_ns,
               FindingSeverity cap = FindingSeverity::kCritical) const;
};

struct FindingRule {
  std::string_view id;
  std::string_view when;   // the rule with its threshold and the reason for it
  std::string_view needs;  // data it needs
  std::string_view advice;
  void (*look)(const FindingContext&);  // null: no recording that llmprof reads holds the evidence yet
};
std::span<const FindingRule> finding_rules();
FindingSeverity severity_of(double gain_frac);

FindingContext make_finding_context(const Context& context, const Report& report, std::vector<Finding>& out);

// host
void find_launch_bound(const FindingContext&);
void find_cpu_bound_gap(const FindingContext&);
void find_sync_bound(const FindingContext&);
void find_allocator_churn(const FindingContext&);
void find_host_preprocessing(const FindingContext&);
void find_python_gc(const FindingContext&);
void find_first_call_cost(const FindingContext&);
void find_profiler_distortion(const FindingContext&);
// memory and copies
void find_memory_bound_weights(const FindingContext&);
void find_memory_bound_kv(const FindingContext&);
void find_kv_cache_copy(const FindingContext&);
void find_pageable_copy(const FindingContext&);
void find_copy_bound(const FindingContext&);
void find_batch_too_small(const FindingContext&);
void find_dtype_wide(const FindingContext&);
void find_comm_bound(const FindingContext&);
// kernels
void find_compute_bound(const FindingContext&);
void find_logits_all_tokens(const FindingContext&);
void find_attention_unfused(const FindingContext&);
void find_tensor_cores_idle(const FindingContext&);
void find_gemm_shape_misaligned(const FindingContext&);
void find_wave_quantization(const FindingContext&);
void find_low_occupancy(const FindingContext&);
void find_graph_padding(const FindingContext&);
// readings beside the program
void find_power_throttled(const FindingContext&);
void find_thermal_throttled(const FindingContext&);
void find_clock_drop(const FindingContext&);
void find_small_kernels_unfused(const FindingContext&);

// Evidence in one line.
inline Evidence measured(std::string metric, double value, std::string unit) {
  return {std::move(metric), value, std::move(unit), provenance::kMeasured};
}
inline Evidence counted(std::string metric, double value, std::string unit) {
  return {std::move(metric), value, std::move(unit), provenance::kCounted};
}

}  // namespace llmprof
