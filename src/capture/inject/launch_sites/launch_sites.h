// Where kernels are launched from (deep mode): native call stacks, taken sparsely so that the cost vanishes after
// warm-up. A function is sampled at its 1st, 2nd, 4th, 8th, ... launch.
//
// A stack is taken in three parts. On the program's thread only return addresses are collected: no lock, no allocation,
// no system call but the clock's (vDSO); errno is kept, and a launch from inside (a signal handler) is left out. The
// drain thread then finds the module of each address and the offset in it, which takes the loader's lock, so it must
// not hold the spool's lock meanwhile; and hands them to the spool. Names are the importer's business: it reads them
// from the modules' files (import/session_stacks.h).
//
// Programs that switch stacks within a thread (greenlet, Boost.Context) are not sampled: such a stack cannot be walked
// safely. Sampling therefore begins when resolve_launch_sites() has looked at the loaded modules for the first time.
//
// Bounds: kSamplesPerFunction of one function and kSamplesMax in all per process; spool::kFramesMax frames; 4096
// functions; kPendingMax stacks not yet written. What these bounds drop is counted and noted in the spool
// (launch-sites-dropped). 2.6 MB of memory, untouched until used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "capture/spool/writer.h"

namespace llmprof::inject {

constexpr uint32_t kSamplesPerFunction = 16;
constexpr uint32_t kSamplesMax = 4096;
constexpr size_t kPendingMax = 512;

// On the launching thread, inside the launch. function_key: equal for launches of the same function. kernel_name: as
// the driver has it; read during the call only. Nothing happens for a null name.
void sample_launch_site(uint64_t function_key, const char* kernel_name, uint32_t correlation);

// On the drain thread, in every round and once before the first launch, without the spool's lock: finds the modules of
// what was sampled. Not from _exit(): it calls the loader.
void resolve_launch_sites();
// With the spool's lock: writes what is resolved, and how many stacks were dropped since the last time.
void drain_launch_sites(spool::Writer& writer);
// The same for the last time: what is not resolved by now is dropped.
void finish_launch_sites(spool::Writer& writer);

// After fork, in the child: forgets everything, counts too.
void abandon_launch_sites();

struct LaunchSiteCounts {
  uint64_t sampled = 0;  // stacks taken
  uint64_t dropped = 0;  // wanted, but there was no room for them
};
LaunchSiteCounts launch_site_counts();

// True for 1, 2, 4, ... up to kSamplesPerFunction such numbers.
bool is_sampled_launch(uint32_t occurrence);

}  // namespace llmprof::inject
