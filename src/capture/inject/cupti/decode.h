// CUPTI's records as spool records.
#pragma once

#include "capture/spool/writer.h"
#include "nvidia/cupti_library.h"

namespace llmprof::inject {

// Writes every record of a buffer that the current level wants. With the spool locked.
void decode(const nvidia::CuptiLibrary& api, uint8_t* buffer, size_t valid_size, spool::Writer& writer);

// Time in kernels over time, in the 0.3 s before a moment not long ago; above 1 where kernels run side by side.
double gpu_busy_before(int64_t time_ns);

}  // namespace llmprof::inject
