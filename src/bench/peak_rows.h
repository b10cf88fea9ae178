// Measured ceilings as the result that `llmprof peaks` answers with.
#pragma once

#include <string>

#include "bench/peaks.h"
#include "results/peaks.h"

namespace llmprof::bench {

PeaksResult peaks_result(const Peaks& peaks, const std::string& tool_version);

MeasuredDevice measured_device(const device::DeviceIdentity& device);
std::string throttle_text(const Timing& timing);  // "power cap 62 %"

}  // namespace llmprof::bench
