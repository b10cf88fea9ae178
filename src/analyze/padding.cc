#include "analyze/padding.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "analyze/occupancy.h"
#include "analyze/roof.h"
#include "derive/step_shapes.h"
#include "replay/what_if.h"

namespace llmprof {
namespace {

using replay::kStays;

// A token that is read back is a number of 4 or 8 bytes.
constexpr int64_t kNumberBytes[] = {8, 4};
constexpr int64_t kNumberLeast = 4;
// Of a stage's steps: the last one of a request may read back something else.
constexpr double kStepsMin = 0.9;
// Fewer rows in use than one in so many: two of each sequence are how guidance without a classifier is computed.
constexpr int64_t kIdleMin = 2;

// Rows that the products of all steps run on; 0 where they differ, or the program says of its own how many are real.
int64_t rows_of(const Steps& steps, const StageGroup& group) {
  const int64_t rows = steps.gemm_rows[group.steps.front()];
  for (const Row s : group.steps) {
    const bool named = steps.annotation[s] != kNoRow && steps.new_tokens[s] > 0 && steps.new_tokens[s] != rows;
    if (steps.gemm_rows[s] != rows || named) return 0;
  }
  return std::max<int64_t>(rows, 0);
}

enum class Attends : uint8_t { kUnknown, kYes, kNo };

// Whether a kernel of attention has so many sequences.
Attends attends(const Context& context, const KernelKey& key, int64_t sequences) {
  const Trace& trace = context.trace;
  const auto answer = [](bool yes) { return yes ? Attends::kYes : Attends::kNo; };
  if (key.work != kNoRow) {
    const Works& works = trace.works;
    if (works.kind[key.work] == WorkKind::kAttention) return answer(works.batch[key.work] == sequences);
    const int64_t batch = works.batch[key.work], narrow = std::min(works.m[key.work], works.n[key.work]);
    // Of heads and sequences; drafts that are checked are rows of one sequence.
    if (works.kind[key.work] == WorkKind::kGemm && batch > 1)
      return answer(batch % sequences == 0 && narrow < sequences);
    return Attends::kUnknown;
  }
  if (key.category != Category::kAttention || key.config == kNoRow) return Attends::kUnknown;
  const int64_t of_grid = sequences_of_grid(trace.text(key.name), trace.launch_configs, key.config);
  return of_grid > 0 ? answer(of_grid == sequences) : Attends::kUnknown;
}

bool attends_to_all(const Context& context, uint32_t stage, int64_t sequences) {
  bool any = false;
  for (uint32_t k = 0; k < context.groups.kernels.size(); ++k) {
    const KernelKey& key = context.groups.kernel_keys.key(k);
    if (key.stage != stage) continue;
    const Attends one = attends(context, key, sequences);
    if (one == Attends::kNo) return false;
    any |= one == Attends::kYes;
  }
  return any;
}

// The most that one copy of each step brings to the host, bytes.
std::vector<int64_t> read_back(const Trace& trace) {
  std::vector<int64_t> out(trace.steps.size(), 0);
  for (GpuOpId op = 0; op < trace.gpu_ops.size(); ++op) {
    const StepId step = trace.gpu_links.step[op];
    if (step != kNoRow && trace.gpu_ops.path[op] == CopyPath::kDeviceToHost)
      out[step] = std::max(out[step], trace.gpu_ops.bytes[op]);
  }
  return out;
}

// Sequences of the prompts before a decode step: of the last one, of those since the decode step before, and of all
// that the program ever had; -1 where one of them is not known.
class Prompts {
 public:
  void add(StepId step, const Steps& steps) {
    if (decoding_) run_ = 0;
    decoding_ = false;
    const int64_t sequences = steps.sequences[step];
    prompt_ = step;
    last_ = sequences > 0 ? sequences : -1;
    for (int64_t* const sum : {&run_, &all_}) *sum = *sum < 0 || sequences <= 0 ? -1 : *sum + sequences;
  }
  void decode() { decoding_ = true; }
  // Of which a step that reads back so many bytes reads one number each; 0: of none.
  int64_t with_a_number_in(int64_t bytes) const {
    for (const int64_t sequences : {last_, run_, all_})
      for (const int64_t each : kNumberBytes)
        if (sequences > 0 && sequences * each == bytes) return sequences;
    return 0;
  }
  StepId last_prompt() const { return prompt_; }

 private:
  bool decoding_ = false;
  StepId prompt_ = kNoRow;
  int64_t last_ = -1, run_ = 0, all_ = 0;
};

// Blocks of a launch over those that the GPU holds at once, whole; 0: not known.
double waves_of(const Context& context, LaunchConfigId config, int32_t device) {
  const Trace& trace = context.trace;
  if (config == kNoRow || context.device == nullptr || !context.device->sm_count) return 0;
  const std::vector<int32_t>& devices = trace.devices.device;
  const std::vector<int32_t>::const_iterator found = std::find(devices.begin(), devices.end(), device);
  const Occupancy occupancy = occupancy_of(trace, config, device);
  if (found == devices.end() || !occupancy.theoretical) return 0;
  const LaunchConfigs& c = trace.launch_configs;
  const double threads = static_cast<double>(c.block_x[config]) * c.block_y[config] * c.block_z[config];
  const double blocks = static_cast<double>(c.grid_x[config]) * c.grid_y[config] * c.grid_z[config];
  const double fit =
      *occupancy.theoretical * trace.devices.threads_per_sm_max[static_cast<size_t>(found - devices.begin())] / threads;
  const double at_once = static_cast<double>(*context.device->sm_count) * std::max(1.0, std::floor(fit));
  return threads > 0 && blocks > 0 ? std::ceil(blocks / at_once) : 0;
}

// Part of its time that a kernel keeps with fewer rows. What has no row for each sequence, or may have none, stays.
double kept_by(const Context& context, uint32_t kernel, const PaddedBatch& batch) {
  const KernelKey& key = context.groups.kernel_keys.key(kernel);
  const Works& works = context.trace.works;
  const double part = static_cast<double>(batch.needed) / static_cast<double>(batch.rows);
  if (context.groups.kernels[kernel].kind != GpuOpKind::kKernel) return 1;
  const bool product = key.work != kNoRow && works.kind[key.work] == WorkKind::kGemm;
  if (product && works.batch[key.work] == 1) {
    if (works.m[key.work] != batch.rows || works.bytes[key.work] <= 0) return 1;
    const double weights = works.weight_bytes[key.work] / works.bytes[key.work], bytes = weights + (1 - weights) * part;
    const KernelRoof roof = kernel_roof(context, kernel);
    switch (kernel_bound(context, kernel, roof)) {
      case Bound::kMemory:
        return bytes;
      case Bound::kCompute:  // until reading its weights takes longer
        return std::max(part, roof.point.memory_ns && *roof.point.compute_ns > 0
                                  ? bytes * *roof.point.memory_ns / *roof.point.compute_ns
                                  : 1.0);
      default:
        return 1;
    }
  }
  const bool by_row = product || key.category == Category::kAttention || key.category == Category::kSoftmax ||
                      key.category == Category::kSampling;
  // However few they are, the last blocks take what one wave of them takes.
  const double waves = by_row ? waves_of(context, key.config, context.groups.stages[key.stage].device) : 0;
  return waves > 0 ? std::max(part, 1 / waves) : 1;
}

}  // namespace

bool is_decode_to_judge(const StageGroup& group) {
  return group.kind == StageKind::kDecode && !group.unattributed && !group.is_warm_up() &&
         group.missing == MissingKernels::kNone && group.state == StepState::kUsual && !group.steps.empty();
}

std::optional<PaddedBatch> padded_batch(const Context& context, uint32_t stage) {
  const Trace& trace = context.trace;
  const Steps& steps = trace.steps;
  const StageGroup& group = context.groups.stages[stage];
  if (!is_decode_to_judge(group)) return {};
  PaddedBatch out;
  out.rows = rows_of(steps, group);
  if (out.rows <= kIdleMin || !attends_to_all(context, stage, out.rows)) return {};
  const std::vector<int64_t> read = read_back(trace);
  Prompts prompts;
  size_t known = 0;
  for (StepId s = 0; s < steps.size(); ++s) {
    if (steps.device[s] != group.device) continue;
    if (steps.kind[s] == StageKind::kPrefill || steps.kind[s] == StageKind::kMixed) prompts.add(s, steps);
    if (steps.kind[s] == StageKind::kDecode) prompts.decode();
    if (context.groups.stage_of_step[s] != stage) continue;
    if (read[s] >= kNumberLeast * out.rows) return {};  // a number for each row
    out.read_bytes = std::max(out.read_bytes, read[s]);
    const int64_t sequences = prompts.with_a_number_in(read[s]);
    // A single number may be a count of those that go on, unless the prompt ended with one too.
    if (sequences == 0 || (sequences == 1 && read[prompts.last_prompt()] != read[s])) continue;
    out.sequences = std::max(out.sequences, sequences);
    ++known;
  }
  if (static_cast<double>(known) < kStepsMin * static_cast<double>(group.steps.size())) return {};
  if (kIdleMin * out.sequences >= out.rows) return {};
  out.needed = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(out.sequences)));
  return out;
}

void add_needed_rows(const Context& context, std::vector<int64_t>& times) {
  std::vector<double> kept(context.groups.kernels.size(), 1);
  bool any = false;
  for (uint32_t stage = 0; stage < context.groups.stages.size(); ++stage) {
    const std::optional<PaddedBatch> batch = padded_batch(context, stage);
    if (!batch) continue;
    any = true;
    for (uint32_t k = 0; k < kept.size(); ++k)
      if (context.groups.kernel_keys.key(k).stage == stage) kept[k] = kept_by(context, k, *batch);
  }
  if (!any) return;
  for (GpuOpId op = 0; op < times.size(); ++op)
    if (const double part = kept[context.groups.kernel_of[op]]; part < 1)
      times[op] = std::max<int64_t>(1, std::llround(part * static_cast<double>(context.trace.gpu_ops.dur_ns[op])));
}

}  // namespace llmprof
