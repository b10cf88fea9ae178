// When how much is recorded: the level follows the control page (delay, duration, ctl), the capture range, the number
// of steps, and the unrecorded windows that keep the cost low and let it be measured.
//
// Unrecorded windows (LLMPROF_UNRECORDED=auto): windows/ knows the program's steps and plans when kernels and calls are
// recorded; here its answers become levels. Ranges, library calls and recurring calls go on in unrecorded windows, so
// the steps inside and outside can be compared, which is how the report knows the distortion. Where CUPTI was attached,
// detached or switched on is written as levels of their own ("attaching", "detaching"): the steps there are no step of
// the program alone (docs/adr 20).
#pragma once

#include <string_view>

#include "capture/inject/inject.h"
#include "capture/inject/threads/thread_events.h"
#include "capture/session/control.h"

namespace llmprof::inject {

constexpr int64_t kNamesAheadNs = 30'000'000;

// Reads the plan from the environment and the control page; the level is set by the first follow_control().
void begin_recording();
// CUPTI is there (called by start_activities): levels above kLight may be taken.
void activities_started();
// Called by the drain thread: takes the level that the plan asks for now.
void follow_control();
// How long the drain thread may sleep, at most `most` nanoseconds: window edges need it earlier.
int64_t next_wake_ns(int64_t most);
// Whether --torch is to name operators, modules and functions: not in unrecorded windows, but again a little before
// they end, because naming begins with the next module or function on each thread.
bool names_wanted();
// At the end of the process: leaves in the spool what recording cost.
void finish_recording();
// After fork, in the child.
void abandon_recording();
// The deepest level that this session can reach.
Level deepest_level();
// Whether nothing is to be recorded until someone says so (--armed, --delay).
bool awaits_start();

// ---- what tells the program's steps (windows/step_keys.h) ----------------------------------------------------------

// Whether there are windows, so that steps matter.
bool tells_steps();
// A range of the calling thread was opened or closed at this depth, 0 or 1. May switch recording, on this thread.
void range_step_begins(uint32_t depth, std::string_view text);
void range_step_ends(uint32_t depth);
// A kernel was launched, seen at the driver; `function` is the same for the same one. Looked at only where nothing else
// tells the steps, and once a thread has launched some, only at the first one after a wait, where steps begin, and at
// some others: looking at each launch costs a program of small kernels some percent.
void kernel_step_seen(const void* function, int64_t time_ns);
inline void kernel_launched(ThreadState& state, const void* function, int64_t time_ns) {
  constexpr uint32_t kAll = 4096, kSome = 16;
  if (!switches.kernels_tell_steps.load(std::memory_order_relaxed)) return;
  const bool behind_wait = state.launches_since_wait == 0;
  ++state.launches_since_wait;
  if (++state.launches < kAll || behind_wait || state.launches % kSome == 0) kernel_step_seen(function, time_ns);
}
// A call of the calling thread that waits for the GPU is over, and so is a step, unless a range of the thread goes on.
void host_waited(int64_t time_ns);
// A call that no steady step makes: code was loaded, memory allocated, a graph made.
void step_disturbed(int64_t time_ns);
// A graph was made executable: steps of another kind begin.
void graph_made_for_steps(int64_t time_ns);

// What counter samplers and `run` want to know of them.
void publish_steps(session::Slot& slot);

// ---- what CUPTI's coming and going costs ---------------------------------------------------------------------------

// The first call after CUPTI was attached is over: until then the program was held up.
void first_call_ended();
// Taking CUPTI out of the process took from `began_ns` to `ended_ns`.
void cupti_left(int64_t began_ns, int64_t ended_ns);
// It came back for a graph that is made in an unrecorded window.
// Kernels were not recorded meanwhile although they were wanted: a graph was uploaded.
void records_were_off(int64_t began_ns, int64_t ended_ns);
void cupti_came(int64_t began_ns, int64_t ended_ns);

}  // namespace llmprof::inject
