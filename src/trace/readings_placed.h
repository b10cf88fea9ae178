// Facts about logs of nvidia-smi that stand beside a recording (import/smi_join.h), in the metadata of the trace.
#pragma once

#include <string_view>

namespace llmprof {

inline constexpr std::string_view kReadingsPlaced = "nvml.readings_placed.";         // and the file: how
inline constexpr std::string_view kReadingsNotPlaced = "nvml.readings_not_placed.";  // and the file: why not
// Decimal: readings lie up to half of it before or behind where they stand.
inline constexpr std::string_view kReadingsUncertainNs = "nvml.readings_uncertain_ns";

}  // namespace llmprof
