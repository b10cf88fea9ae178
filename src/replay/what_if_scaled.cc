// What all kernels depend on: the batch, the clock, the GPU, how many of them share the work. By how much each takes
// longer, those say who know its shape and the peaks (KernelScales).
#include <cmath>

#include "replay/what_if.h"

namespace llmprof::replay {
namespace {

void with_scales(const Recording& recording, Scale scale, Durations& durations) {
  const std::vector<double>& factor = recording.scales(scale).factor;
  for (GpuOpId op = 0; op < factor.size(); ++op)
    if (factor[op] != 1) durations.op_ns[op] = std::llround(static_cast<double>(durations.op_ns[op]) * factor[op]);
}

}  // namespace

void with_doubled_batch(const Recording& recording, Durations& durations, Latencies&) {
  with_scales(recording, Scale::kBatch, durations);
}
void at_full_clock(const Recording& recording, Durations& durations, Latencies&) {
  with_scales(recording, Scale::kClock, durations);
}
void with_even_gpus(const Recording& recording, Durations& durations, Latencies&) {
  with_scales(recording, Scale::kEvenGpus, durations);
}
void on_another_gpu(const Recording& recording, Durations& durations, Latencies&) {
  with_scales(recording, Scale::kGpu, durations);
}

std::string clock_unknown(const Recording& recording, const Durations&, std::span<const StepId>) {
  return recording.scales(Scale::kClock).unknown;
}
std::string gpu_unknown(const Recording& recording, const Durations&, std::span<const StepId>) {
  return recording.scales(Scale::kGpu).unknown;
}

}  // namespace llmprof::replay
