// CUPTI in the process: attached, its activity records switched on and off, taken out again, and its buffers decoded
// into the spool.
//
// While records are off CUPTI is taken out of the process where that is safe (cuptiFinalize at the end of a call),
// because a CUPTI that has recorded once slows every later launch, records or not: by a twelfth on eager TinyLlama
// (docs/adr 10).
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

// CUPTI stays from now on, and comes back if it is out: a graph is about to be captured, or another client wants it.
void keep_attached();
// The same, from inside one of its callbacks.
void graph_call_seen();

// Gives up what only the deep mode asks for.
void leave_deep_mode();

// Delivers what CUPTI has complete. Must be called without the spool's lock: buffers arrive on the calling thread too.
void flush_activities();
// When to flush next, at most `most` nanoseconds from now.
int64_t flush_wait_ns(int64_t most);

// At the end of the process: the last records.
void finish_activities(bool orderly);

// After fork, in the child: true if CUPTI had been loaded. Touches nothing of it.
bool abandon_activities();

// Tells the spool about the GPUs that this process sees, once CUDA is initialised.
void describe_devices();

// Whether we need this activity kind on; switches the callbacks of our calls on again after another client's change.
bool wants_kind(uint32_t kind);
void enable_own_calls();

uint64_t recorded_kernels();
spool::ClockReading read_clocks();

// A buffer of records, from our own request or from another client of the same CUPTI.
void decode_buffer(uint8_t* buffer, size_t valid_size);

}  // namespace llmprof::inject
