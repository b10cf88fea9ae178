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
//
// `attached` false: CUPTI is loaded and stays out of the process until records are wanted or a graph is made; a
// subscription alone, with nothing recorded, made eager steps 5 % longer.
bool start_activities(Level deepest, bool attached);

// Kernels, copies and memsets on or off. Callable from any thread, also while kernels run. True if CUPTI had to be
// attached for it: then the end of the next call is told (first_call_ended of recording.h).
bool set_kernel_records(bool on);

// What is launched from now on is wanted, or is not: as the level changes, by which calls are recorded. Records come on
// before that, and may be on until CUPTI leaves.
void want_kernels(bool on);

// CUPTI is to leave at the end of one of the next calls.
bool activities_leave();

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

spool::ClockReading read_clocks();

}  // namespace llmprof::inject
