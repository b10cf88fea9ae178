// Every kernel source with every set of macros that an operation asks for.
#pragma once

#include <vector>

#include "device/cuda/compiler.h"

namespace llmprof::device::cuda {

std::vector<KernelSource> every_kernel();

}  // namespace llmprof::device::cuda
