// Groupings that several analyses need, computed once in linear passes over the trace: which stage every step, GPU
// activity, operator and API call belongs to, and the GPU activities grouped by name, launch, stage and arithmetic.
// Everything here is small integers; texts are made only for rows that reach the report.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/flat_index.h"
#include "trace/trace.h"

namespace llmprof {

// One row of the stage table: steps of one device with equal name, kind, source, state and phase. Every device has one
// more row, `unattributed`, for what lies outside every step.
struct StageGroup {
  int32_t device = 0;
  StageKind kind = StageKind::kOther;
  StageSource source = StageSource::kDetected;
  StringId name = StringId::kEmpty;
  bool unattributed = false;
  std::vector<Row> steps;
  int64_t wall_ns = 0, busy_ns = 0, idle_ns = 0;  // from the windows, the busy intervals and the gaps, independently
  int64_t not_recorded_ns = 0;                    // gaps in which kernels were not recorded; not part of idle_ns
  // As in Steps; all steps of a group agree.
  MissingKernels missing = MissingKernels::kNone;
  StepState state = StepState::kUsual;
  StepPhase phase = StepPhase::kServing;
  bool is_warm_up() const { return phase == StepPhase::kWarmUp; }  // no rule judges it
  double scale = 1;            // from sums over the recorded part to the whole recording; see Groups
  bool steps_unknown = false;  // it may have steps in unrecorded time of which nothing is known
  int64_t gpu_ns = 0;          // sum of durations, overlap counted twice
  int64_t gpu_ops = 0, launches = 0;
  double weight_bytes = 0, kv_bytes = 0;  // of its GEMMs, gathers and attention: what it reads, once a call
  std::array<int64_t, static_cast<size_t>(IdleCause::kCount)> idle_by_cause{};
  int64_t idle_of(IdleCause cause) const { return idle_by_cause[static_cast<size_t>(cause)]; }
};

struct KernelKey {
  StringId name;
  LaunchConfigId config;
  WorkId work;
  uint32_t stage;
  Category category;
  CopyPath path = CopyPath::kUnknown;  // of copies, as gpu_ops has it
  HostMemory host_memory = HostMemory::kUnknown;
  friend bool operator==(const KernelKey&, const KernelKey&) = default;
  uint64_t hash() const {
    const uint64_t a = uint64_t{index(name)} << 32 | config;
    const uint64_t b = uint64_t{work} << 32 | uint64_t{stage} << 8 | static_cast<uint64_t>(category);
    const uint64_t c = static_cast<uint64_t>(path) << 8 | static_cast<uint64_t>(host_memory);
    return mix_bits(a ^ mix_bits(b ^ (c << 40)));
  }
};

// A number of a group per GPU activity: two bytes each as long as all are small.
class KernelNumbers {
 public:
  void resize(size_t rows) { small_.resize(rows); }
  uint32_t operator[](size_t row) const { return large_.empty() ? small_[row] : large_[row]; }
  void set(size_t row, uint32_t number) {
    if (large_.empty() && number <= UINT16_MAX) {
      small_[row] = static_cast<uint16_t>(number);
      return;
    }
    if (large_.empty()) {
      large_.assign(small_.begin(), small_.end());
      small_ = {};
    }
    large_[row] = number;
  }

 private:
  std::vector<uint16_t> small_;
  std::vector<uint32_t> large_;
};

struct KernelSums {
  int64_t calls = 0, total_ns = 0, min_ns = INT64_MAX, max_ns = 0;
  int64_t covered_ns = 0;
  int64_t exposed_ns = 0;               // of copies and collectives: what other streams' work does not hide (exposed.h)
  std::optional<int64_t> copied_bytes;  // of copies; empty for kernels, and where one copy's bytes are not recorded
  GpuOpKind kind = GpuOpKind::kKernel;
};

// The part of the host's time that prepares a step: from the first host activity of the step to that of the next.
struct HostInterval {
  int64_t start_ns, end_ns;
  uint32_t stage;
};

// Sums of a group are over recorded time: figures per step divide them by the complete steps they come from, shares by
// the recorded time. What is to hold for the whole recording (what a finding would save) is the sum times the group's
// `scale`, and only ever compared with the whole window:
//   - a stage whose steps in unrecorded time are known by the program's ranges: wall time of all steps over that of the
//     complete ones;
//   - any other stage, and the time outside every step: unrecorded time that is in no known step is taken to hold the
//     same mix of them as recorded time does. Only from the start of serving on, where there is a warm-up to tell from
//     it: a program starts once. So the scale of the time outside every step is for what lies after that start;
//   - what a warm-up holds: 1.
struct Groups {
  std::vector<StageGroup> stages;         // by first step; the unattributed rows last, one per window
  std::vector<uint32_t> stage_of_step;    // parallel to steps
  std::vector<uint32_t> stage_of_stream;  // parallel to streams: the unattributed row of its device
  FlatIndex<KernelKey> kernel_keys;       // group -> key
  std::vector<KernelSums> kernels;        // parallel to kernel_keys
  KernelNumbers kernel_of;                // parallel to gpu_ops
  // By device that has steps, in the order of the devices: sorted, disjoint.
  std::vector<std::vector<HostInterval>> host;
  // By thread: rows of `host` of the devices that it launched work on; else those of its process; else all.
  std::vector<std::vector<uint32_t>> host_of_thread;
  // Parallel to steps: GPU time that the step needs at least, however early it is launched. The part of its window in
  // which its device was busy; more where several GPUs share it and wait for each other (analyze/several_gpus.h).
  std::vector<int64_t> least_gpu_ns;
  std::vector<int64_t> busy_ns;  // parallel to steps: part of its window in which its device was busy
  int64_t gpu_ns = 0;            // sum of all durations

  // Row in works of what a GPU activity computes, kNoRow where that is not known.
  WorkId work_of(GpuOpId op) const { return kernel_keys.key(kernel_of[op]).work; }
  // Row of stages for "outside every step" of a device; the first unattributed row if the device has no window.
  uint32_t unattributed(int32_t device) const;
  bool is_unattributed(uint32_t stage) const { return stages[stage].unattributed; }
};

Groups group_trace(const Trace& trace);

// Name of the stage as reports show it.
std::string stage_name(const Trace& trace, const StageGroup& group);
inline std::string stage_name(const Trace& trace, const Groups& groups, uint32_t stage) {
  return stage_name(trace, groups.stages[stage]);
}

// Walks the host intervals along with times that never decrease by much; returns the stage on the host at a time: of
// several GPUs the one whose step began last.
class HostCursor {
 public:
  explicit HostCursor(const Groups& groups)
      : groups_(groups), outside_(groups.unattributed(INT32_MIN)), next_(groups.host.size(), 0) {}
  uint32_t stage_at(ThreadId thread, int64_t time_ns) {
    const HostInterval* last = nullptr;
    for (const uint32_t device : groups_.host_of_thread[thread]) last = later(last, interval_at(device, time_ns));
    return last != nullptr ? last->stage : outside_;
  }
  // Of whichever thread.
  uint32_t stage_at(int64_t time_ns) {
    const HostInterval* last = nullptr;
    for (uint32_t device = 0; device < groups_.host.size(); ++device) last = later(last, interval_at(device, time_ns));
    return last != nullptr ? last->stage : outside_;
  }

 private:
  static const HostInterval* later(const HostInterval* a, const HostInterval* b) {
    if (a == nullptr || b == nullptr) return a == nullptr ? b : a;
    return b->start_ns > a->start_ns ? b : a;
  }
  const HostInterval* interval_at(uint32_t device, int64_t time_ns) {
    const std::vector<HostInterval>& host = groups_.host[device];
    size_t& next = next_[device];
    while (next > 0 && time_ns < host[next - 1].start_ns) --next;
    while (next < host.size() && host[next].start_ns <= time_ns) ++next;
    return next > 0 && time_ns < host[next - 1].end_ns ? &host[next - 1] : nullptr;
  }

  const Groups& groups_;
  uint32_t outside_;
  std::vector<size_t> next_;  // by device: the first interval that starts after the last time asked for
};

}  // namespace llmprof
