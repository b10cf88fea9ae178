// The model behind a recording: given by the user, or recognised by the weights that its GEMMs multiply with. Fills
// FLOPs and bytes of stages by formula where shapes are not recorded, and compares both where they are.
#pragma once

#include "analyze/analysis.h"

namespace llmprof {

// Errors: an unknown model name (with the nearest), a config file that cannot be read, negative counts.
Status check_workload_options(const AnalyzeOptions& options);

void analyze_workload(const Context& context, Report& report, std::vector<CannotTell>& cannot_tell);

// The arithmetic's time at the peaks that MFU is a share of, and at the roof; empty if one of the types has none.
struct ComputeTimes {
  OptDouble at_peak_ns, at_roof_ns;
};
// Sets tflops, mfu, mbu, intensity and the place on the roofline from flops and bytes of the row.
void fill_stage_rates(const DeviceReport* device, const ComputeTimes& compute, StageTiming& row);

}  // namespace llmprof
