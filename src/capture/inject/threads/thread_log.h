// Events of the program's own threads (NVTX ranges, library calls, graph launches): each thread appends fixed-size
// entries to a log of its own without taking a lock that others hold for long; the drain thread empties the logs into
// the spool twice a second. A full log is emptied by its own thread, so nothing is lost.
#pragma once

#include <cstdint>

#include "capture/spool/writer.h"

namespace llmprof::inject {

struct ThreadLog;

// Empties the logs of all threads, also of ended ones, into the spool. Called by the drain thread and at the end with
// the spool locked. Ranges that have been open since the previous call are written as RangeOpen.
void drain_thread_logs(spool::Writer& writer);

// The spool's id of the thread whose log this is, with the spool locked.
spool::Id thread_def_of(ThreadLog& log, spool::Writer& writer);

// The library call that this thread is inside of, 0 if none: what graph nodes captured now belong to.
uint64_t current_library_call();

// After fork, in the child: logs of threads that no longer exist are forgotten.
void abandon_thread_logs();

}  // namespace llmprof::inject
