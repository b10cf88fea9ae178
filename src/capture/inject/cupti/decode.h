// CUPTI's records as spool records.
#pragma once

#include <cstddef>
#include <cstdint>

namespace llmprof::inject {

// Writes every record of a buffer, from our own request or from another client of the same CUPTI, that the current
// level wants. Takes the spool's lock.
void decode_buffer(uint8_t* buffer, size_t valid_size);

uint64_t recorded_kernels();
// The largest of CUPTI's correlation ids among them, since they were forgotten: ids begin anew with each attaching.
uint32_t last_recorded_correlation();
void forget_correlations();

// Time in kernels over time, in the 0.3 s before a moment not long ago; above 1 where kernels run side by side.
double gpu_busy_before(int64_t time_ns);

}  // namespace llmprof::inject
