// Findings: what is wrong, with numbers of this run, what to change, and how much that can bring at most. One function
// and one row of the registry (finding_registry.cc) each; thresholds stand beside the rule with their reason.
// A wrong finding costs more than a missing one: a rule that lacks its data says nothing here and, where a reader
// would expect an answer, something under cannot_tell. Adding one: docs/howto/add-a-finding.md.
#pragma once

#include <array>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "analyze/analysis.h"
#include "analyze/consequence.h"
#include "analyze/host_places.h"
#include "analyze/roof.h"
#include "analyze/simulation.h"
#include "derive/recorded_spans.h"
#include "replay/what_if.h"

namespace llmprof {

// Idle time behind the host in the steps of a stage, in disjoint parts: each is the matter of one rule.
struct HostIdle {
  // Short gaps: launches and dispatch (launch-bound), by cause.
  std::array<double, static_cast<size_t>(IdleCause::kCount)> launch_by_cause{};
  double launch_ns = 0;
  // Single gaps of host code of at least kLongGapNs, and short ones that are too much for launches (cpu-bound-gap).
  double code_ns = 0;
  int64_t long_gaps = 0;
  bool short_is_code = false;
  // Short gaps that begin while the host waits for the GPU in a blocking call (sync-bound where they are most of the
  // short ones; else they are launches like the others). Live recordings only: there API calls are as short as without
  // a recorder.
  double after_sync_ns = 0;
  int64_t after_syncs = 0;
  bool drained = false;
  double recorder_ns = 0;  // what recording cost the host: in none of the above
  // Long ones before the first activity of a step, where host-preprocessing tells of them.
  double boundary_ns = 0;
  int64_t boundary_gaps = 0;
};

// One stage with everything the rules judge. Its sums are over complete steps; steps of warm-up are a stage of their
// own, which no rule judges: what they cost is first-call-cost and says nothing of the steps after them.
struct StageView {
  uint32_t stage = 0;  // row of Groups::stages
  const StageGroup* group = nullptr;
  const StageTiming* timing = nullptr;
  StageConsequence consequence;
  int64_t steps = 0;
  int64_t wall = 0, busy = 0;  // ns
  int64_t least_gpu = 0;       // ns that the GPUs need for the steps at least: Groups::least_gpu_ns
  int64_t gpu_ops = 0, launches = 0;
  std::array<int64_t, static_cast<size_t>(IdleCause::kCount)> idle_by_cause{};
  std::vector<uint32_t> kernels;          // rows of Groups::kernels
  int64_t kv_copy_ns = 0, kv_copies = 0;  // concatenations that copy a cache to append to it
  HostIdle host;

  // Shares and figures per step hold whatever part of the time was recorded.
  double wall_ns() const { return static_cast<double>(wall); }
  double busy_ns() const { return static_cast<double>(busy); }
  double least_gpu_ns() const { return static_cast<double>(least_gpu); }
  double count() const { return static_cast<double>(steps); }
  double idle_ns(IdleCause cause) const { return static_cast<double>(idle_by_cause[static_cast<size_t>(cause)]); }
  // Time of the program itself: a recorder that works while the GPU waits is no part of it.
  double own_ns() const { return wall_ns() - idle_ns(IdleCause::kProfiler); }
  // Time outside every step, judged where a recording has no steps to speak of: of the whole recorded time then.
  bool whole() const { return group->unattributed; }
  double per_step_ms(double ns) const { return ns / count() / 1e6; }
  // "copies on the GPU per step", and without "per step" where there are none.
  std::string each(std::string_view what) const { return std::string(what) + (whole() ? "" : " per step"); }
  // "decode: ", how the title of a finding begins.
  std::string label() const { return whole() ? std::string() : timing->name + ": "; }
  bool graph_replay() const { return launches * 4 < gpu_ops; }
  // Idle time because the host did not launch in time.
  double host_idle_ns() const;
  // What the figure that the stage moves could become if `gain_ns` of the steps went away.
  GainBound bound(double gain_ns) const { return consequence.bound(gain_ns, wall_ns()); }
  // The same where only waiting goes: what the GPU does in the steps stays, so the figure is never below that.
  GainBound bound_of_waiting(double gain_ns) const;
  // bound(), but no step of `step_ms` below `least_ms`.
  GainBound bound_above(double gain_ns, double step_ms, double least_ms) const;
  // Whether the GPU waits for the host in most of the time: then it would wait the longer if it had less to do.
  bool waits_for_host() const;
};

// Functions that prepare a model's inputs, by the names that frameworks give them.
bool prepares_inputs(std::string_view python_name);

struct FindingContext;
// GPU idle time behind Python functions of some kind, after the start of serving.
struct PythonIdle {
  double whole_ns = 0;                   // of the whole recording
  std::map<StringId, double> sites_ns;   // of the recorded time, by function
  std::map<uint32_t, double> stages_ns;  // of the recorded time, by stage
};
PythonIdle idle_behind(const FindingContext& finding, bool (*wanted)(std::string_view));

// Idle time because the host did not launch in time.
bool is_host_cause(IdleCause cause);

// A simulated gain below is within what replay is off, or not worth a change.
constexpr double kGainMin = 0.05;

// A host gap at least this long is no launch overhead.
using replay::kLongGapNs;

struct FindingContext {
  const Context& context;
  const Report& report;
  std::vector<StageView> stages;    // with at least one step and some GPU time
  std::vector<StageView> unstaged;  // time outside every step, where most of the GPU's work lies there
  // Stages before a prompt that run no part of the model and take a good part of TTFT. Those with copies are among
  // `stages` too, where no rule about launches judges them.
  std::vector<StageView> preparations;
  double window_ns = 0;                        // of all devices, recorded or not
  std::map<int32_t, int64_t> serving_from_ns;  // serving_starts(): what comes before is warm-up, and not judged
  std::vector<uint8_t> typical;                // 1 for the steps that the headline's figures are medians of
  std::vector<std::vector<PlaceSums>> places;  // Python code, by stage
  std::vector<uint8_t> gap_after_sync;         // 1 for the gaps of HostIdle::after_sync_ns; empty but for live
  std::vector<Finding>* out = nullptr;
  Simulation* simulation = nullptr;  // null: nothing is simulated
  bool between = false;              // host-preprocessing tells of host code between steps, by gaps
  bool preparing = false;            // it tells of Python functions that prepare inputs

  const Trace& trace() const { return context.trace; }
  // Recorded by llmprof itself: rules go by API calls, kernels and library calls where there are no operators.
  bool before_serving(int32_t device, int64_t time_ns) const {
    const std::map<int32_t, int64_t>::const_iterator from = serving_from_ns.find(device);
    return from != serving_from_ns.end() && time_ns < from->second;
  }
  // A sum over a stage's recorded part, scaled to the whole recording (Groups): what window_ns is compared with.
  double whole_ns(uint32_t stage, double sum_ns) const { return sum_ns * context.groups.stages[stage].scale; }
  bool live() const { return is_live_recording(context.trace); }
  // Of an activity in a step.
  uint32_t stage_of(GpuOpId op) const { return context.groups.stage_of_step[trace().gpu_links.step[op]]; }
  const KernelKey& key(uint32_t kernel) const { return context.groups.kernel_keys.key(kernel); }
  const KernelSums& sums(uint32_t kernel) const { return context.groups.kernels[kernel]; }
  // Rules that hold without steps too: about what kernels, copies and calls do.
  std::vector<const StageView*> with_unstaged() const;
  const StageView* preparation(uint32_t stage) const;  // null if it is none
  // What a change brings a stage; nothing where its steps cannot be run again.
  std::optional<StageGain> simulated(const StageView& stage, std::initializer_list<std::string_view> what_ifs) const;
  // Whether a change is worth a finding: by what it brings, and only where that is not known by what sums say.
  bool worth(const StageView& stage, std::string_view what_if, bool by_sums) const;
  // Adds the Python code of the stage that does most of something: at most three places. `but_ends`: not the code whose
  // wait ends steps.
  void add_places(const StageView& stage, PlaceKind kind, Finding& finding, bool but_ends = false) const;
  // Raises a finding of the whole recording to what a part of it, `gain_ns` of a stage's steps, means to those
  // who wait for that stage: a long start does not make it less.
  void raise(uint32_t stage, double gain_ns, Finding& finding) const;
  // Adds to a finding what it brings at most if the gaps of the stage that are `wanted` go, `gain_ns` in all: each from
  // its own step, for the figure is that of the typical step. Where that one has none of them nothing is promised, and
  // the evidence says how many steps have.
  template <class Wanted>
  void bound_gaps(const StageView& stage, double gain_ns, Wanted&& wanted, Finding& finding) const {
    std::map<Row, double> gain_of_step;
    if (!stage.whole())
      for (Row gap = 0; gap < trace().gaps.size(); ++gap)
        if (of_stage(gap, stage) && wanted(gap))
          gain_of_step[trace().gaps.step[gap]] += static_cast<double>(trace().gaps.dur_ns[gap]);
    bound_by_step(stage, gain_ns, gain_of_step, finding);
  }
  void bound_by_step(const StageView& stage, double gain_ns, const std::map<Row, double>& gain_of_step,
                     Finding& finding) const;
  // Adds to a finding about work of the GPU what less of that work brings at most; where the GPU waits for the host in
  // most of the time nothing is promised, and the advice says so.
  void bound_work(const StageView& stage, double gain_ns, Finding& finding) const;
  // Whether an idle gap is in a step of the stage, and not in warm-up.
  bool of_stage(Row gap, const StageView& stage) const;
  // Of idle gaps: behind a Python function that prepares inputs; single host code of at least kLongGapNs; before the
  // first activity of its step; reported by host-preprocessing; part of HostIdle::code_ns.
  bool prepares(Row gap) const;
  bool is_long(Row gap) const;
  bool opens_step(Row gap) const;
  bool told_elsewhere(Row gap) const;
  bool is_code(Row gap, const StageView& stage) const;
  // Part of HostIdle::launch_ns.
  bool is_launch(Row gap, const StageView& stage) const;
  // Behind a blocking call, or after one that left the GPU without work.
  bool is_wait(Row gap, const StageView& stage) const;
  // Adds a finding. `gain_ns` of a stage is the sum over its steps; without a stage it is of the whole recording
  // (whole_ns). Severity follows from the share that goes: of what the stage's users wait for (consequence.h), or of
  // the window: critical from 30 %, major from 10 %, minor from 3 %, info below; a stage whose figure makes up less
  // than 10 % of a typical request is one level lower. It is at most FindingRule::most.
  Finding& add(std::string_view id, const StageView* stage, std::string title, double gain_ns) const;
};

struct FindingRule {
  std::string_view id;
  std::string_view when;   // the rule with its threshold and the reason for it
  std::string_view needs;  // data it needs
  std::string_view advice;
  void (*find)(const FindingContext&);  // null: no recording that llmprof reads holds the evidence yet
  // Whether it holds where the program ran its model on the CPU: nothing is launched there, and there are no thread
  // blocks, tensor cores or copies to a device. What such a rule says, it says with processor().
  bool on_cpu = false;
  FindingSeverity most = FindingSeverity::kCritical;  // however large the share
  std::string_view most_why = {};
};
std::span<const FindingRule> finding_rules();
const FindingRule& finding_rule(std::string_view id);  // which is in the registry
// How severity follows from what could go, in words.
std::string severity_rule();
FindingSeverity severity_of(double gain_frac);
FindingSeverity severity_for(const StageConsequence& consequence, double share);
// What findings are ordered by: the share of the steady run that goes. Of the figure it counts no more than what
// `most`, the severity that its rule or change can have, stands for.
double order_share(const StageConsequence& consequence, double share, FindingSeverity most);

FindingContext make_finding_context(const Context& context, const Report& report, std::vector<Finding>& out);

// Sums over the steps of a stage (stage_view.cc).
void fill_sums(const Context& context, StageView& view);
// The parts of the host's idle time, of all stages (host_idle.cc).
void add_host_idle(FindingContext& finding, std::vector<StageView*>& by_stage);
// Sets FindingContext::preparations (find_preparing.cc).
void add_preparations(const std::vector<StageConsequence>& consequences, FindingContext& finding);
void find_preparations(const FindingContext&);
// Puts what changes bring by replay into the findings that they mend, merges those of one cause and notes what forbids
// a change (simulated_findings.cc).
void simulate_findings(const FindingContext& finding, std::vector<Finding>& found);

// host
void find_launches_block(const FindingContext&);
void find_launch_bound(const FindingContext&);
void find_cpu_contention(const FindingContext&);  // find_contention.cc
void find_python_traced(const FindingContext&);   // find_traced.cc
void find_cpu_bound_gap(const FindingContext&);
void find_sync_bound(const FindingContext&);
void find_allocator_churn(const FindingContext&);
void find_host_preprocessing(const FindingContext&);
void find_no_input(const FindingContext&);
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
// several GPUs, several streams
void find_rank_skew(const FindingContext&);
void find_uneven_gpus(const FindingContext&);
void find_streams_taking_turns(const FindingContext&);
void find_copies_one_stream(const FindingContext&);
// CUDA graphs
void find_graphs_made_anew(const FindingContext&);
void find_graphs_in_pieces(const FindingContext&);
// kernels
void find_compute_bound(const FindingContext&);
void find_logits_all_tokens(const FindingContext&);
void find_attention_unfused(const FindingContext&);
void find_dense_experts(const FindingContext&);
void find_tensor_cores_idle(const FindingContext&);
void find_gemm_shape_misaligned(const FindingContext&);
void find_wave_quantization(const FindingContext&);
void find_low_occupancy(const FindingContext&);
void find_graph_padding(const FindingContext&);
void find_padded_batch(const FindingContext&);
void find_padded_attention(const FindingContext&);
void find_converted_weights(const FindingContext&);
void find_recomputation(const FindingContext&);
void find_separate_adapters(const FindingContext&);
void find_rewritten_weights(const FindingContext&);
void find_repeated_reads(const FindingContext&);
void find_data_movement(const FindingContext&);
void find_oversized_tensors(const FindingContext&);
void find_double_precision(const FindingContext&);
void find_layout_conversion(const FindingContext&);
void find_gathered_weights(const FindingContext&);
void find_full_sort(const FindingContext&);
void find_products_in_pieces(const FindingContext&);
void find_no_kv_cache(const FindingContext&);
// readings beside the program
void find_power_throttled(const FindingContext&);
void find_thermal_throttled(const FindingContext&);
void find_clock_drop(const FindingContext&);
void find_norm_unfused(const FindingContext&);
void find_small_kernels_unfused(const FindingContext&);

// Evidence in one line.
inline Evidence measured(std::string metric, double value, Unit unit) {
  return {std::move(metric), value, unit, Provenance::kMeasured};
}
inline Evidence counted(std::string metric, double value, Unit unit) {
  return {std::move(metric), value, unit, Provenance::kCounted};
}

}  // namespace llmprof
