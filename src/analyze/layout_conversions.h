// cuDNN's conversions of tensors between NCHW and NHWC around its convolutions: on tensor cores they work in NHWC, and
// a program that keeps its tensors in NCHW has each of them converted, weights included, at every call.
#pragma once

#include <vector>

#include "analyze/analysis.h"

namespace llmprof {

// Such kernels in steps, by the names that cuDNN gives them (nchwToNhwcKernel, nhwcToNchwKernel and what adds padding
// to them).
std::vector<GpuOpId> layout_conversions(const Context& context);

}  // namespace llmprof
