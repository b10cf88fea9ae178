// When how much is recorded: the level follows the control page (delay, duration, ctl), the capture range, the number
// of steps, and the unrecorded windows that keep the cost low and let it be measured.
//
// Unrecorded windows (LLMPROF_UNRECORDED=auto): recording each kernel and launch costs a launch-bound program up to a
// fifth. After kFullNs of full recording, kernels and calls are recorded a fifth of the time, in windows of kRecordedNs
// that grow to kRecordedMostNs; ranges, library calls and recurring calls go on, so the steps inside and outside can be
// compared, which is how the report knows the distortion. An outermost range whose text (digits aside) has not been
// recorded kRareRecorded times ends an unrecorded window for as long as it is open, so that a stage that comes once in
// a while is recorded when it comes. That costs it the time in which CUPTI comes back, so only the first ones do.
#pragma once

#include <string_view>

#include "capture/inject/inject.h"

namespace llmprof::inject {

constexpr int64_t kFullNs = 1'000'000'000;
constexpr int64_t kRecordedNs = 500'000'000;
constexpr int64_t kRecordedMostNs = 5'000'000'000;
constexpr int64_t kUnrecordedPerRecorded = 4;
constexpr uint32_t kRareRecorded = 2;
constexpr int64_t kNamesAheadNs = 30'000'000;

// Reads the plan from the environment and the control page; the level is set by the first follow_control().
void begin_recording();
// CUPTI is there (called by start_activities): levels above kLight may be taken.
void activities_started();
// Called by the drain thread: takes the level that the plan asks for now.
void follow_control();
// How long the drain thread may sleep, at most `most` nanoseconds: window edges need it earlier.
int64_t next_wake_ns(int64_t most);
// An outermost range was opened. A load and a compare where there are no windows. True if it ended an unrecorded
// window: then its thread tells when it closes.
bool outermost_range_opened(std::string_view text);
void forcing_range_closed();
// Whether --torch is to name operators, modules and functions: not in unrecorded windows, but again a little before
// they end, because naming begins with the next module or function on each thread.
bool names_wanted();
// After fork, in the child.
void abandon_recording();
// The deepest level that this session can reach.
Level deepest_level();

}  // namespace llmprof::inject
