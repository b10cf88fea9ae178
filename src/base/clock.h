// The two clocks of whatever records: CLOCK_REALTIME stamps what is recorded (the axis of every spool), CLOCK_MONOTONIC
// paces the loops, so that a stepped wall clock neither floods nor starves them.
#pragma once

#include <time.h>

#include <cerrno>
#include <cstdint>

namespace llmprof {

inline int64_t read_clock_ns(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return int64_t{now.tv_sec} * 1000000000 + now.tv_nsec;
}
inline int64_t realtime_ns() { return read_clock_ns(CLOCK_REALTIME); }
inline int64_t monotonic_ns() { return read_clock_ns(CLOCK_MONOTONIC); }

// For waits that end at a time of CLOCK_REALTIME, as pthread's do.
inline timespec realtime_after(int64_t wait_ns) {
  const int64_t until_ns = realtime_ns() + wait_ns;
  return {static_cast<time_t>(until_ns / 1000000000), static_cast<long>(until_ns % 1000000000)};
}

// Returns at the given CLOCK_MONOTONIC time, never before; at once if it has passed. A signal ends it early: false.
inline bool sleep_until_monotonic(int64_t time_ns) {
  const timespec until{static_cast<time_t>(time_ns / 1000000000), static_cast<long>(time_ns % 1000000000)};
  return clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) != EINTR;
}

}  // namespace llmprof
