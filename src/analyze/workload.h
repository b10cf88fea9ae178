// The model behind a recording: given by the user, or recognised by the weights that its GEMMs multiply with. Fills
// FLOPs and bytes of stages by formula where shapes are not recorded, and compares both where they are.
#pragma once

#include "analyze/analysis.h"

namespace llmprof {

// Errors: an unknown model name (with the nearest), a config file that cannot be read, negative counts.
Status check_workload_options(const AnalyzeOptions& options);

void analyze_workload(const Context& context, Report& report, std::vector<CannotTell>& cannot_tell);

// Sets tflops, mfu, mbu, intensity and the place on the roofline from flops and bytes of the row. compute_ns is the
// arithmetic's time at peak; empty if a peak is unknown.
void fill_stage_rates(const DeviceReport* device, OptDouble compute_ns, StageTiming& row);

}  // namespace llmprof
