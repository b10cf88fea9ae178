// The model behind a recording: given by the user, or recognised by the weights that its GEMMs multiply with. Fills
// FLOPs and bytes of stages by formula where shapes are not recorded, and compares both where they are.
#pragma once

#include "analyze/analysis.h"

namespace llmprof {

// Errors: an unknown model name (with the nearest), a config file that cannot be read, negative counts.
Status check_model_options(const AnalyzeOptions& options);

// What the GEMMs of one step of a stage multiply with, where the shapes of (nearly) all of them are recorded.
struct StepWeights {
  double elements = 0;                 // 0: no stage's shapes are known
  int64_t widest_n = 0, widest_k = 0;  // the GEMM with most outputs: the lm_head
  const StageTiming* stage = nullptr;  // a row of the report
};
StepWeights weights_of_step(const Context& context, const Report& report);
// The shipped model that has those weights; empty if none has.
std::string recognised_model(const Context& context, const Report& report);

void analyze_model_formula(const Context& context, Report& report, std::vector<CannotTell>& cannot_tell);

// The arithmetic's time at the peaks that MFU is a share of, and at the roof; empty if one of the types has none.
struct ComputeTimes {
  OptDouble at_peak_ns, at_roof_ns;
};
// Sets tflops, mfu, mbu, intensity and the place on the roofline from flops and bytes of the row.
void fill_stage_rates(const DeviceReport* device, const ComputeTimes& compute, StageTiming& row);

}  // namespace llmprof
