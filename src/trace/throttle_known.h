// Which bits of nvml_samples.throttle_reasons a recording knows. A recorder may log some of them only: those that it
// does not are 0 in the rows, and unknown.
#pragma once

#include <cstdint>

#include "trace/trace.h"

namespace llmprof {

inline constexpr uint64_t kAllThrottleReasons = ~uint64_t{0};

// Kept beside the tables, unless it is all.
void set_throttle_reasons_known(Trace& trace, uint64_t bits);
uint64_t throttle_reasons_known(const Trace& trace);

}  // namespace llmprof
