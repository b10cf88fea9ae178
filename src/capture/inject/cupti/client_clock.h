// The clock of a second CUPTI client. torch.profiler has CUPTI stamp records with the processor's tick counter. CUPTI
// honours that only if no activity kind is on yet; with ours on, it interpolates between two clocks, and the records of
// both are worthless (seen on an H200: no kernel in torch.profiler's trace, one to fourteen percent of ours lost). So
// CUPTI keeps its own clock, CLOCK_REALTIME in ns, and the client's buffers are stamped anew on their way to it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "nvidia/cupti_library.h"

namespace llmprof::inject {

// From here on the client gets its records in the time of `clock`.
void set_client_clock(cupti::TimestampFunction clock);
cupti::TimestampFunction client_clock();  // null if there is none

// Rewrites the times in a buffer of ns. The client's clock is taken to run evenly since it was set.
void stamp_for_client(const nvidia::CuptiLibrary& api, uint8_t* buffer, size_t valid_size);

// A client was there before us: CUPTI was given its clock, and gets its own back before our kinds are switched on.
void clock_given_to_cupti(cupti::TimestampFunction clock);
void take_clock_back(const nvidia::CuptiLibrary& api);

}  // namespace llmprof::inject
