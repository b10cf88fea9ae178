// What the parts of the injection library share: the level at which this process records, the one spool of the process,
// and the clock. The library lives inside a program that knows nothing of it: nothing here throws, prints, exits or
// waits for long, and everything is usable from any thread, also before main and while the process ends.
#pragma once

#include <time.h>

#include <atomic>
#include <cstdint>
#include <string_view>

#include "base/clock.h"
#include "capture/spool/writer.h"

namespace llmprof::inject {

using spool::Level;

// CUPTI's default clock; about 20 ns a call (vDSO).
inline int64_t now_ns() { return realtime_ns(); }

// CUPTI on its way out of the process: what was in flight is waited for, then the next end of a call takes it out.
enum class Leaving : uint8_t { kNo, kSettling, kDue };

// What every callback of a launch reads, in one line of the cache: the program's own code and data push ours out
// between two launches, and each line that comes back from memory costs a slow host some tens of nanoseconds.
struct alignas(64) Switches {
  std::atomic<Level> level{Level::kOff};        // right now; kOff before start() and after fork in the child
  std::atomic<bool> kernels_tell_steps{false};  // recording.h
  std::atomic<bool> reads_library_logs{false};  // libraries/library_logs.h
  std::atomic<bool> client_callbacks{false};    // cupti/cupti_share.h
  std::atomic<bool> kernels_on{false};          // records of kernels
  std::atomic<bool> first_call_due{false};      // after an attaching
  std::atomic<bool> cupti_left{false};          // it is ready, and out of the process
  std::atomic<Leaving> leaving{Leaving::kNo};
  std::atomic<uint32_t> correlation_base{0};  // added to CUPTI's ids (cupti/api_calls.h)
};
extern Switches switches;
inline Level level() { return switches.level.load(std::memory_order_relaxed); }
inline bool records_ranges() { return level() >= Level::kLight; }
inline bool records_kernels() { return level() >= Level::kDefault; }

// Reads the environment (session/control.h), opens the spool and starts the drain thread, once per process; whoever is
// loaded first calls it (CUDA injection, NVTX injection, a hooked library call). False if this process is not watched.
// Cheap once done.
bool start();

// Holds the lock of the process's spool while it exists. writer() is null when there is no spool (not watched, forked
// child, disk full at open).
class SpoolAccess {
 public:
  SpoolAccess();
  ~SpoolAccess();
  SpoolAccess(const SpoolAccess&) = delete;
  SpoolAccess& operator=(const SpoolAccess&) = delete;
  spool::Writer* writer() const { return writer_; }

 private:
  spool::Writer* writer_;
};

// Makes the drain thread look now. Not to be called with a lock of the recorder held.
void wake_drain_thread();

// Makes it ask again how long it may sleep, and nothing more: something is there to be sampled. The same holds.
void rouse_drain_thread();

// Tells recording.cc of a recurring host event (spool::RecurringCall), at every level.
void step_recurs(uint64_t key, int64_t time_ns);

// Leaves a diagnostic (a key of base/diagnostics.h) for the report, at most once per key and text.
void note(std::string_view key, std::string_view text);

// ---- windows (--capture-range, --steps) -------------------------------------------------------------------------

// True if the opening and closing of ranges must be told to the two functions below, with or without a level.
bool watches_ranges();
void range_opened(std::string_view name);
void range_closed(std::string_view name);

// Linux thread id of the caller, cached per thread.
int64_t thread_id();

}  // namespace llmprof::inject
