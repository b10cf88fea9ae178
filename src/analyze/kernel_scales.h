// By how much longer kernels and copies would take with twice the sequences, at the GPU's highest clock, or on another
// GPU (replay::Scale): from their recorded shapes and what limits them (analyze/roof.h).
#pragma once

#include <string>

#include "analyze/analysis.h"
#include "replay/what_if.h"

namespace llmprof {

// `gpu`: of Scale::kGpu, a name of the hardware table.
replay::KernelScales kernel_scales(const Context& context, replay::Scale scale, const std::string& gpu = {});

}  // namespace llmprof
