// By how much longer kernels and copies would take with twice the sequences, at the GPU's highest clock, or on another
// GPU (replay::Scale): from their recorded shapes and what limits them (analyze/roof.h). And with the work of passes
// over several GPUs in equal parts.
#pragma once

#include <map>
#include <string>

#include "analyze/analysis.h"
#include "replay/what_if.h"

namespace llmprof {

// `gpu`: of Scale::kGpu, a name of the hardware table.
replay::KernelScales kernel_scales(const Context& context, replay::Scale scale, const std::string& gpu = {});

// Time of the kernels in passes that run on several GPUs (Steps::pass), ns by GPU, communication aside; by name of
// stage.
std::map<StringId, std::map<int32_t, double>> work_of_gpus(const Context& context);

}  // namespace llmprof
