// Host buffers for CUPTI's records: a bounded free list of zeroed memory.
#pragma once

#include <cstddef>
#include <cstdint>

namespace llmprof::inject {

// The two callbacks that CUPTI gets.
void buffer_requested(uint8_t** buffer, size_t* size, size_t* max_records);
void buffer_completed(void* context, uint32_t stream, uint8_t* buffer, size_t size, size_t valid_size);

// Puts memory whose pages are there into the free list, on the drain thread: a launch would pay for the faults, up to a
// microsecond each on virtual machines. As many buffers as were asked for twice over since the call before, two at
// least.
void keep_buffers_ready();

// Decodes the buffers that have come in. CUPTI delivers them under locks that the program's launches need, so they are
// only put aside then; the drain thread decodes them afterwards.
void decode_completed();

// Drops them undecoded: CUPTI has left, and with it the names that their records point to.
void discard_completed();

// After fork, in the child: the buffers belong to the parent.
void abandon_buffers();

}  // namespace llmprof::inject
