// Facts about logs of nvidia-smi that stand beside a recording (import/smi_join.h), in the metadata of the trace.
#pragma once

#include <string_view>

namespace llmprof {

// And the file: why not.
inline constexpr std::string_view kReadingsNotPlaced = "nvml.readings_not_placed.";
// Decimal: readings lie up to half of it before or behind where they stand.
inline constexpr std::string_view kReadingsUncertainNs = "nvml.readings_uncertain_ns";

}  // namespace llmprof
