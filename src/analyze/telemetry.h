// Hardware counters, clock, power and energy per stage: fills the counter fields of a row of the stage table.
#pragma once

#include "analyze/analysis.h"
#include "analyze/counters.h"

namespace llmprof {

// Readings of one device, made once for all of its stages.
struct DeviceReadings {
  DeviceReadings(const Trace& trace, int32_t device, const DeviceReport* report);
  CounterSamples counters;
  NvmlReadings nvml;
  int64_t uncertain_ns;  // readings_uncertain_ns()
};

// CounterSamples are means over time, memory traffic their integral; both from the samples that overlap the windows of
// the steps. GPM samples (100 ms) only where the median step is at least as long as a sample.
void fill_stage_readings(const Context& context, const DeviceReadings& readings, const StageGroup& group,
                         StageTiming& row);

// tensor_flops_measured, fma_flops_measured and flops_measured from the raw counts of the row. tensor_flops_per_cycle:
// of the fastest element type that the stage's arithmetic has; not needed where the tensor pipe never ran.
void fill_measured_flops(OptDouble tensor_flops_per_cycle, StageTiming& row);
// Why stages with counter samples have no flops_measured, and stages that executed less than their shapes say.
void explain_measured_flops(const Report& report, std::vector<CannotTell>& cannot_tell);

// What a device may draw, W, as the driver said it when recording began; empty where it did not, for a part of a
// divided GPU, and where it is not known which of several GPUs the device is.
OptDouble power_limit_w(const Trace& trace, int32_t device);

// Energy of a stage needs this much of it: the power sensor of data centre GPUs sees 25 of every 100 ms.
inline constexpr int64_t kEnergyStageNsMin = 2'000'000'000;
// Below this share of the time covered by samples no total of memory traffic is given.
inline constexpr double kCounterCoverageMin = 0.9;

}  // namespace llmprof
