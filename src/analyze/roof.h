// What limits what was recorded, by its place on the roofline (hardware/roofline.h).
#pragma once

#include "analyze/groups.h"
#include "analyze/report_data.h"
#include "hardware/roofline.h"

namespace llmprof {

// What limits an activity: by its place on the roof where its arithmetic is known (`work` not kNoRow); else by nature:
// copies, communication, short kernels (latency), and passes over memory (norm, elementwise, ...). A GEMM or attention
// kernel without recorded shape is unknown.
Bound kernel_bound(const KernelKey& key, const KernelSums& sums, const Works& works, const DeviceReport* device);

}  // namespace llmprof
