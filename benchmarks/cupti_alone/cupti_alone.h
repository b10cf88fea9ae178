// What benchmarks/recorded_steps_target.py reads and switches through ctypes.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {

enum AlonePlace {
  kPlaceRecorder = 0,  // CUPTI as the recorder has it
  kPlaceSilent = 1,    // no callbacks and no records; the recorder's subscription stays if it is there
  kPlaceAlone = 2,     // no callbacks, kernel records alone
  // What the recorder has on as well, one after the other, with a callback that does nothing.
  kPlaceCopies = 3,    // kernel records, and those of copies, memsets and CUPTI's overhead
  kPlaceLaunches = 4,  // and callbacks of the driver's launches
  kPlaceCalls = 5,     // and all callbacks of the runtime's and the driver's calls that the recorder had last
};

// Counts and switches, all of the same type for ctypes.
struct AloneState {
  uint64_t place;               // AlonePlace
  uint64_t recorder_attached;   // CUPTI is in the process by the recorder's subscription
  uint64_t recorder_kinds;      // activity kinds that it has on, by bit
  uint64_t recorder_callbacks;  // callbacks that it wants
  uint64_t own_subscription;    // CUPTI is in the process by this library's subscription
  uint64_t subscriptions;       // of the recorder
  uint64_t finalizations;       // CUPTI taken out by the recorder
  uint64_t switches;            // of the recorder: grows with each attaching, taking out and switching of records
  uint64_t records;             // that this library received
  uint64_t refused_buffers;     // records were lost
  uint64_t unexpected;          // calls of the recorder that should not come where they came
  uint64_t last_result;         // CUptiResult of the last call that failed
};

// 0, or 1 with the reason in `why`.
int llmprof_alone_open(char* why, size_t size);
void llmprof_alone_state(AloneState* out);
// 0; a CUptiResult; -1: the recorder records, or CUPTI has not been taken out yet; -2: neither the place before nor
// `place` is the recorder's; -3: no memory; -4: callbacks of the recorder's, which stays in the process.
int llmprof_alone_switch(int place);
// Takes CUPTI out at once, where no waiting call did after the switch back.
int llmprof_alone_finalize();

}  // extern "C"
