// CUPTI's activity records: switching them on and off, and decoding their buffers into the spool.
#pragma once

#include <cstdint>

#include "capture/inject/inject.h"

namespace llmprof::inject {

// Loads CUPTI, subscribes, asks for the records of `deepest`, the deepest level this session can reach. Called once,
// from InitializeInjection, before the program has a CUDA context. Kernels are not recorded until set_kernel_records.
// False, with a note, if CUPTI is missing or held by another tool.
bool start_activities(Level deepest);

// Kernels, copies and memsets on or off. Callable from any thread, also while kernels run.
void set_kernel_records(bool on);

// True while CUPTI can record kernels.
bool has_activities();

// Gives up what only the deep mode asks for.
void leave_deep_mode();

// Delivers what CUPTI has complete. Must be called without the spool's lock: buffers arrive on the calling thread too.
void flush_activities();

// At the end of the process: the last records.
void finish_activities(bool orderly);

// After fork, in the child: true if CUPTI had been loaded. Touches nothing of it.
bool abandon_activities();

// Tells the spool about the GPUs that this process sees, once CUDA is initialised.
void describe_devices();

// Whether a record of this call is kept; whether we need this activity kind on; switches our calls on (again).
bool keeps_call(bool runtime, uint32_t cbid);
bool wants_kind(uint32_t kind);
void enable_own_calls();

uint64_t recorded_kernels();
spool::ClockReading read_clocks();

// A buffer of records, from our own request or from another client of the same CUPTI.
void decode_buffer(uint8_t* buffer, size_t valid_size);

}  // namespace llmprof::inject
